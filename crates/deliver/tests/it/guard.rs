//! Addresses that must not be called are not, whatever leads to them.

use std::net::SocketAddr;

use reveille_deliver::courier::SendError;
use reveille_deliver::destination::Rules;
use tokio::net::TcpListener;

use crate::sink::{Caller, OK, Scripted, Sink, local_rules};

#[tokio::test]
async fn a_public_name_that_leads_to_this_machine_is_refused() {
    let sink = Sink::answering(OK).await;
    let everything: Rules = Rules {
        allow_http_loopback: true,
        private_networks: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
    };
    for rules in [Rules::default(), local_rules(), everything] {
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "::ffff:0.0.0.0"] {
            let address: SocketAddr = SocketAddr::new(address.parse().unwrap(), sink.port);
            let caller = Caller::resolving(rules.clone(), Scripted::new(move |_, _| vec![address]));
            let url = format!("https://public.example:{}/", sink.port);
            let refused = Err(SendError::AddressRefused(address.ip()));
            assert_eq!(caller.post(&url).await, refused);
        }
    }
    assert_eq!(sink.accepts(), 0);
}

#[tokio::test]
async fn private_addresses_are_refused_however_a_name_leads_to_them() {
    let addresses = ["10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fd00:ec2::254"];
    for address in addresses {
        let address = SocketAddr::new(address.parse().unwrap(), 443);
        let resolver = Scripted::new(move |_, _| vec![address]);
        let caller = Caller::resolving(local_rules(), resolver);
        let refused = Err(SendError::AddressRefused(address.ip()));
        assert_eq!(caller.post("https://public.example/").await, refused);
    }
}

#[tokio::test]
async fn each_connection_is_checked_anew() {
    let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let sink = Sink::answering(answer).await;
    let allowed: SocketAddr = ([127, 0, 0, 1], sink.port).into();
    let refused: SocketAddr = ([169, 254, 169, 254], sink.port).into();
    let resolver =
        Scripted::new(move |_, number| vec![if number == 1 { allowed } else { refused }]);
    let caller = Caller::resolving(local_rules(), resolver);
    let url = format!("http://localhost:{}/", sink.port);
    assert_eq!(caller.post(&url).await.unwrap().status, 200);
    assert_eq!(caller.post(&url).await, Err(SendError::AddressRefused(refused.ip())));
    assert_eq!(sink.accepts(), 1);
}

#[tokio::test]
async fn literals_are_refused_although_nothing_resolves_them() {
    let sink = Sink::answering(OK).await;
    let resolver = Scripted::new(|host, _| panic!("{host} is not a name"));
    // The destination was accepted under other rules, before a restart.
    let caller = Caller::resolving(Rules::default(), resolver);
    let refused = Err(SendError::AddressRefused([127, 0, 0, 1].into()));
    assert_eq!(caller.post(&sink.url()).await, refused);
    let localhost = format!("http://localhost:{}/", sink.port);
    let address = ([127, 0, 0, 1], sink.port).into();
    let caller = Caller::resolving(Rules::default(), Scripted::new(move |_, _| vec![address]));
    assert_eq!(caller.post(&localhost).await, refused);
    assert_eq!(sink.accepts(), 0);
}

#[tokio::test]
async fn addresses_are_tried_in_order_and_refused_ones_passed_over() {
    let (sink, second) = (Sink::answering(OK).await, Sink::answering(OK).await);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let open: SocketAddr = ([127, 0, 0, 1], sink.port).into();
    let later: SocketAddr = ([127, 0, 0, 1], second.port).into();
    let refused: SocketAddr = ([10, 0, 0, 1], sink.port).into();
    let check = async |found: Vec<SocketAddr>| {
        let resolver = Scripted::new(move |_, _| found.clone());
        let caller = Caller::resolving(local_rules(), resolver);
        caller.post("http://localhost/").await.map(|answer| answer.status)
    };
    assert_eq!(check(vec![open, later]).await, Ok(200));
    assert_eq!(check(vec![refused, closed, open, later]).await, Ok(200));
    assert_eq!((sink.accepts(), second.accepts()), (2, 0));
    assert_eq!(check(vec![closed]).await, Err(SendError::NoConnection));
    assert_eq!(check(vec![refused, closed]).await, Err(SendError::NoConnection));
    assert_eq!(check(vec![closed, refused]).await, Err(SendError::NoConnection));
    assert_eq!(check(vec![refused]).await, Err(SendError::AddressRefused(refused.ip())));
    assert_eq!(check(vec![]).await, Err(SendError::Unresolved));
}

/// A listener that nobody accepts from and that takes no further connection: like a host that
/// swallows packets.
fn silent_listener() -> (std::net::TcpListener, Vec<std::net::TcpStream>, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let wait = std::time::Duration::from_millis(200);
    let connect = || std::net::TcpStream::connect_timeout(&address, wait).ok();
    let held = std::iter::from_fn(connect).collect();
    (listener, held, address)
}

#[tokio::test]
async fn an_address_that_swallows_packets_does_not_keep_the_next_one_waiting() {
    let sink = Sink::answering(OK).await;
    let open: SocketAddr = ([127, 0, 0, 1], sink.port).into();
    let silent: Vec<_> = (0..3).map(|_| silent_listener()).collect();
    let refused: SocketAddr = ([169, 254, 169, 254], 80).into();
    for count in 1..=3 {
        let mut found: Vec<SocketAddr> = silent.iter().map(|it| it.2).take(count).collect();
        found.extend([refused, open]);
        let caller = Caller::resolving(local_rules(), Scripted::new(move |_, _| found.clone()));
        assert_eq!(caller.post("http://localhost/").await.unwrap().status, 200);
    }
}
