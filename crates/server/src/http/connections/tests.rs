//! Who makes room for whom.

use super::*;

fn tenant(name: &str) -> Tenant {
    Tenant::parse(name).unwrap()
}

/// Whether the connection was told to make room.
fn is_told(connection: &Connection) -> bool {
    connection.is_closing.load(Ordering::SeqCst)
}

/// A connection on which a request with a key was answered.
async fn known(connections: &Connections) -> Arc<Connection> {
    let connection = connections.enter().await;
    connection.begin().has_key();
    connection
}

#[tokio::test]
async fn strangers_go_first_then_the_one_that_is_idle_for_longest() {
    let connections = Connections::new(5);
    let busy = connections.enter().await;
    let request = busy.begin();
    let (old, young) = (known(&connections).await, known(&connections).await);
    let stranger = connections.enter().await;
    let late_stranger = connections.enter().await;
    // It was used again: now it is the younger one.
    old.begin().has_key();
    let told = |all: [&Arc<Connection>; 5]| all.map(|it| is_told(it));
    let all = [&busy, &old, &young, &stranger, &late_stranger];
    for expected in [
        [false, false, false, true, false],
        [false, false, false, true, true],
        [false, false, true, true, true],
        [false, true, true, true, true],
        [false, true, true, true, true],
    ] {
        connections.make_room();
        assert_eq!(told(all), expected);
    }
    drop(request);
    connections.make_room();
    assert!(is_told(&busy));
}

#[tokio::test]
async fn who_comes_waits_while_everybody_is_busy() {
    let connections = Connections::new(2);
    let (first, second) = (connections.enter().await, connections.enter().await);
    let (request, _other) = (first.begin(), second.begin());
    let waiting = connections.clone();
    let entering = tokio::spawn(async move { waiting.enter().await.number });
    while !connections.shared.is_awaited.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    assert!(!is_told(&first) && !entering.is_finished());
    drop(request);
    // Whoever serves it hears of it and hangs up.
    first.closed().await;
    assert!(!entering.is_finished());
    drop(first);
    assert!(entering.await.unwrap() > second.number);
}

#[tokio::test]
async fn a_request_that_was_faster_keeps_its_connection() {
    let connections = Connections::new(1);
    let connection = connections.enter().await;
    connections.make_room();
    let request = connection.begin();
    let mut closed = std::pin::pin!(connection.closed());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(closed.as_mut().poll(&mut context).is_pending());
    drop(request);
    connections.make_room();
    assert!(closed.as_mut().poll(&mut context).is_ready());
}

#[tokio::test]
async fn no_tenant_is_busy_on_every_connection() {
    let connections = Connections::new(8);
    let (loud, quiet) = (tenant("loud"), tenant("quiet"));
    let mut requests = Vec::new();
    for taken in 0..8 {
        let request = connections.enter().await.begin();
        let refused = request.belongs_to(&loud);
        assert_eq!(refused.is_err(), taken >= 6, "{taken}");
        // Another request on the same connection, as in HTTP/2, takes nothing more.
        assert_eq!(request.connection.begin().belongs_to(&loud).is_err(), taken >= 6);
        if refused.is_ok() {
            requests.push(request);
        }
    }
    let other = connections.enter().await.begin();
    assert!(other.belongs_to(&quiet).is_ok());
    requests.pop();
    let again = connections.enter().await.begin();
    assert!(again.belongs_to(&loud).is_ok());
}
