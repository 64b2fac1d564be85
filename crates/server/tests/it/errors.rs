//! Every documented refusal, reached through HTTP.

use crate::harness::*;

#[tokio::test(flavor = "multi_thread")]
async fn smoke() {
    let server = Setup::default().start().await;
    server.create("/a", "text/plain").await;
    server.append("/a", "text/plain", b"hello").await.expect(204);
    let answer = server.get("/a").await.expect(200);
    assert_eq!(answer.text(), "hello");
    println!("{answer}");
    println!("{}", server.head("/a").await);
    server.stop().await;
}
