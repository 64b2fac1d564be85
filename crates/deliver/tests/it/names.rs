//! Names, asked of a name server that the test is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reveille_deliver::courier::SendError;
use reveille_deliver::resolve::{NameResolver, NameServers, Resolve};
use tokio::net::UdpSocket;

use crate::sink::within;

/// Knows `…good.example`, says that there is no `…gone.example`, and of all others nothing.
async fn name_server() -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            counter.fetch_add(1, Ordering::SeqCst);
            if let Some(answer) = answer(&buffer[..length]) {
                socket.send_to(&answer, from).await.unwrap();
            }
        }
    });
    (address, asked)
}

/// RFC 1035 §4.1: a header, the question, and an address if one is asked for.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let name_end = 12 + question[12..].iter().position(|byte| *byte == 0)?;
    let name = String::from_utf8_lossy(&question[12..name_end]).to_lowercase();
    let is_good = name.contains("good");
    if !is_good && !name.contains("gone") {
        return None;
    }
    let is_v4 = question[name_end + 2] == 1;
    let (code, answers) = (if is_good { 0 } else { 3 }, u8::from(is_good && is_v4));
    let mut said = vec![question[0], question[1], 0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0];
    said.extend_from_slice(&question[12..name_end + 5]);
    if answers == 1 {
        said.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
    }
    Some(said)
}

fn resolver(server: SocketAddr) -> NameResolver {
    NameResolver::new(Arc::new(|| 0), NameServers::These(vec![server]))
}

#[tokio::test]
async fn names_are_asked_of_the_servers_that_were_named_and_remembered() {
    let (server, asked) = name_server().await;
    let (resolver, tenant) = (resolver(server), "a".into());
    for _ in 0..3 {
        let found = within(resolver.resolve(&tenant, "good.example", 443)).await;
        assert_eq!(found, Ok(vec![([192, 0, 2, 7], 443).into()]));
    }
    let asked_for_good = asked.load(Ordering::SeqCst);
    assert!((1..=2).contains(&asked_for_good), "for each kind of address once");
    for _ in 0..3 {
        let found = within(resolver.resolve(&tenant, "gone.example", 443)).await;
        assert_eq!(found, Err(SendError::Unresolved));
    }
    assert!(asked.load(Ordering::SeqCst) <= asked_for_good + 2, "that there is none, too");
}

#[tokio::test]
async fn a_name_server_that_is_silent_finds_nothing_in_the_end() {
    let (server, _) = name_server().await;
    let found = within(resolver(server).resolve(&"a".into(), "slow.example", 443)).await;
    assert_eq!(found, Err(SendError::Unresolved));
}

#[tokio::test]
async fn slow_names_of_one_tenant_do_not_keep_those_of_another_waiting() {
    let (server, _) = name_server().await;
    let resolver = Arc::new(resolver(server));
    let loud: Arc<str> = "loud".into();
    let slow: Vec<_> = (0..500)
        .map(|number| tokio::spawn(resolver.resolve(&loud, &format!("slow-{number}.example"), 80)))
        .collect();
    tokio::task::yield_now().await;
    for number in 0..50 {
        let name = format!("good-{number}.example");
        assert!(within(resolver.resolve(&"quiet".into(), &name, 80)).await.is_ok());
    }
    assert!(slow.iter().any(|it| !it.is_finished()), "some of them are still being looked for");
}
