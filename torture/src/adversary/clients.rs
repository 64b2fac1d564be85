//! Several clients of the loud tenant at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{anyhow, ensure};
use harness::http::{Connection, Response};

use super::Target;

const CONNECTIONS: usize = 12;

impl Target {
    /// Has several clients at it, each on a connection of its own, until the attack is over.
    /// Returns how many requests were answered with success, and how many were refused.
    pub(super) fn together(
        &self,
        request: impl Fn(usize, usize) -> (&'static str, String, String) + Sync,
    ) -> anyhow::Result<(usize, usize)> {
        let (done, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CONNECTIONS)
                .map(|client| {
                    let (request, done, refused) = (&request, &done, &refused);
                    scope.spawn(move || -> anyhow::Result<()> {
                        let mut connection = None;
                        for turn in 0.. {
                            if self.is_over() {
                                break;
                            }
                            let (method, target, body) = request(client, turn);
                            // Who is hung up on comes again.
                            let mut open = match connection.take() {
                                Some(open) => open,
                                None => match Connection::open(self.server) {
                                    Ok(open) => open,
                                    Err(_) => continue,
                                },
                            };
                            let answer = self.send_on(&mut open, method, &target, body.as_bytes());
                            if let Ok(answer) = answer {
                                check(&target, &answer)?;
                                let is_done = answer.status < 300;
                                if is_done { done } else { refused }
                                    .fetch_add(1, Ordering::Relaxed);
                                connection = Some(open);
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            let ended =
                clients.into_iter().map(|it| it.join().map_err(|_| anyhow!("a thread failed"))?);
            ended.collect::<anyhow::Result<()>>()
        })?;
        Ok((done.into_inner(), refused.into_inner()))
    }
}

/// Whatever is refused is refused as a limit or a mistake, never as a failure of the server's own.
pub(super) fn check(target: &str, answer: &Response) -> anyhow::Result<()> {
    let status = answer.status;
    ensure!(status < 500 || status == 503, "{target}: {status} {}", answer.text());
    Ok(())
}
