//! `reveille append`: each append once, however often it has to be sent.

use anyhow::{Context as _, anyhow, ensure};
use bytes::Bytes;
use clap::Args;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use reveille_core::media::Framing;
use reveille_core::{ContentType, StreamPath};
use reveille_engine::doors::{Entropy as _, SystemEntropy};
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use super::{ApiRequest, ApiResponse, Client, ServerArguments, is_true, parse_path, stdin, text};
use crate::failure::usage_error;

/// JSON lines that are waiting travel together, up to this many and this many bytes.
const BATCH_MESSAGES_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// What `reveille append` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The stream: the path of its URL
    #[arg(value_name = "PATH", value_parser = parse_path)]
    path: StreamPath,
    /// What to append, exactly as it is; `-` or nothing: standard input
    #[arg(value_name = "TEXT")]
    data: Option<String>,
    /// Appends JSON (application/json)
    #[arg(long)]
    json: bool,
    /// Appends every line of standard input as a message of its own
    #[arg(long)]
    lines: bool,
    /// Content type of the append [default: text/plain, or application/json with --json]
    #[arg(long, value_name = "TYPE", value_parser = parse_content_type)]
    content_type: Option<ContentType>,
    #[command(flatten)]
    server: ServerArguments,
}

fn parse_content_type(text: &str) -> Result<ContentType, String> {
    let content_type = ContentType::parse(text);
    content_type.ok_or_else(|| "a content type is written like text/plain".to_owned())
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let data = arguments.data.filter(|data| data != "-");
    if data.is_some() && arguments.lines {
        return Err(usage_error("--lines reads standard input; leave the text out"));
    }
    let content_type = arguments.content_type.unwrap_or_else(|| {
        let name = if arguments.json { "application/json" } else { "text/plain" };
        ContentType::parse(name).expect("a constant")
    });
    let client = Client::new(arguments.server)?;
    let mut producer = Producer::new(client, arguments.path, content_type)?;
    let offset = super::block_on(async {
        if arguments.lines {
            return producer.append_lines(stdin::read_lines()).await;
        }
        let body = match data {
            Some(text) => text.into_bytes(),
            None => stdin::read_all()?,
        };
        ensure!(!body.is_empty(), "there is nothing to append; give a text, or pipe something in");
        producer.append(body.into()).await.map(Some)
    })?;
    if let Some(offset) = offset {
        println!("{offset}");
    }
    Ok(())
}

/// A stream that this program is a producer of.
struct Producer {
    client: Client,
    path: StreamPath,
    content_type: ContentType,
    headers: HeaderMap,
    /// Appends that were accepted: the sequence number of the next one.
    accepted: u64,
}

impl Producer {
    fn new(
        client: Client,
        path: StreamPath,
        content_type: ContentType,
    ) -> anyhow::Result<Producer> {
        let mut random = [0; 16];
        SystemEntropy::default().fill(&mut random);
        let id = format!("cli-{:032x}", u128::from_le_bytes(random));
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_str(content_type.as_str())
            .map_err(|_| usage_error("--content-type has characters that no header can carry"))?;
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(HeaderName::from_static("producer-id"), HeaderValue::from_str(&id)?);
        headers.insert(HeaderName::from_static("producer-epoch"), HeaderValue::from(0));
        Ok(Producer { client, path, content_type, headers, accepted: 0 })
    }

    /// Appends line by line and returns the last offset, if there was a line.
    async fn append_lines(
        &mut self,
        lines: mpsc::Receiver<anyhow::Result<Vec<u8>>>,
    ) -> anyhow::Result<Option<String>> {
        let is_json = self.content_type.framing() == Framing::Json;
        let mut batches = BatchReader { lines, is_json, pending: None, lines_read: 0 };
        let (mut offset, mut appended) = (None, 0);
        let progress =
            |appended: u64| format!("{appended} lines are appended, those behind them are not");
        while let Some(batch) = batches.next().await.with_context(|| progress(appended))? {
            let done = self.append(batch.body).await.with_context(|| progress(appended))?;
            offset = Some(done);
            appended = batch.last;
        }
        Ok(offset)
    }

    /// Appends once and returns the offset behind it.
    async fn append(&mut self, body: Bytes) -> anyhow::Result<String> {
        let mut request = ApiRequest::new(Method::POST, self.path.as_str());
        request.headers = self.headers.clone();
        request
            .headers
            .insert(HeaderName::from_static("producer-seq"), HeaderValue::from(self.accepted));
        request.body = body;
        let mut answer = self.client.send(&request).await?;
        if answer.status == StatusCode::NOT_FOUND {
            self.create().await?;
            answer = self.client.send(&request).await?;
        }
        match answer.status {
            StatusCode::OK | StatusCode::NO_CONTENT => {
                self.accepted += 1;
                let offset = text(&answer.headers, "stream-next-offset");
                let offset = offset.context("the server did not say where the append ended")?;
                Ok(offset.to_owned())
            }
            StatusCode::CONFLICT => Err(self.explain_conflict(&answer).await),
            _ => Err(self.client.refusal(&answer)),
        }
    }

    async fn create(&self) -> anyhow::Result<()> {
        let mut request = ApiRequest::new(Method::PUT, self.path.as_str());
        if let Some(kind) = self.headers.get(CONTENT_TYPE) {
            request.headers.insert(CONTENT_TYPE, kind.clone());
        }
        let answer = self.client.send(&request).await?;
        match answer.status {
            // A conflict means that somebody else was faster; the append will show whether it fits.
            StatusCode::CREATED | StatusCode::OK | StatusCode::CONFLICT => Ok(()),
            _ => Err(self.client.refusal(&answer)),
        }
    }

    async fn explain_conflict(&self, answer: &ApiResponse) -> anyhow::Error {
        let path = &self.path;
        if is_true(&answer.headers, "stream-closed") {
            return anyhow!("{path} is closed: nothing can be appended to it any more");
        }
        let head = self.client.send(&ApiRequest::new(Method::HEAD, path.as_str())).await;
        let current = head.ok().and_then(|head| {
            let current = text(&head.headers, CONTENT_TYPE.as_str())?;
            ContentType::parse(current)
        });
        match current {
            Some(current) if !current.same_media(&self.content_type) => {
                let flag = match current.framing() {
                    Framing::Json => "--json".to_owned(),
                    Framing::Text | Framing::Binary => format!("--content-type '{current}'"),
                };
                anyhow!("{path} holds {current}, not {}; pass {flag}", self.content_type)
            }
            _ => self.client.refusal(answer),
        }
    }
}

/// Lines on their way into appends.
struct BatchReader {
    lines: mpsc::Receiver<anyhow::Result<Vec<u8>>>,
    is_json: bool,
    /// A line that did not fit into the batch before.
    pending: Option<Vec<u8>>,
    /// Lines that were read.
    lines_read: u64,
}

struct Batch {
    body: Bytes,
    /// The number of its last line.
    last: u64,
}

impl BatchReader {
    /// The next append: one line, or as many JSON lines as are waiting.
    async fn next(&mut self) -> anyhow::Result<Option<Batch>> {
        if !self.is_json {
            let line = self.lines.recv().await.transpose()?;
            self.lines_read += 1;
            return Ok(line.map(|line| Batch { body: line.into(), last: self.lines_read }));
        }
        let Some(first) = self.first_message().await? else {
            return Ok(None);
        };
        let mut body = vec![b'['];
        body.extend_from_slice(&first);
        let mut last = self.lines_read;
        for _ in 1..BATCH_MESSAGES_MAX {
            let Ok(line) = self.lines.try_recv() else {
                break;
            };
            let Some(message) = self.message(line?)? else {
                continue;
            };
            if body.len() + message.len() > BATCH_BYTES_MAX {
                self.pending = Some(message);
                break;
            }
            body.push(b',');
            body.extend_from_slice(&message);
            last = self.lines_read;
        }
        body.push(b']');
        Ok(Some(Batch { body: body.into(), last }))
    }

    async fn first_message(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        if let Some(message) = self.pending.take() {
            return Ok(Some(message));
        }
        while let Some(line) = self.lines.recv().await {
            if let Some(message) = self.message(line?)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// A line as a message; `None` if there is nothing in it.
    fn message(&mut self, line: Vec<u8>) -> anyhow::Result<Option<Vec<u8>>> {
        self.lines_read += 1;
        let message = line.trim_ascii();
        if message.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice::<IgnoredAny>(message)
            .map_err(|error| anyhow!("line {} is not JSON ({error})", self.lines_read))?;
        Ok(Some(message.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn batches(is_json: bool, input: &[&str]) -> Vec<Result<(String, u64), String>> {
        let (sender, lines) = mpsc::channel(input.len().max(1));
        for line in input {
            sender.send(Ok(line.as_bytes().to_vec())).await.unwrap();
        }
        drop(sender);
        let mut batches = BatchReader { lines, is_json, pending: None, lines_read: 0 };
        let mut seen = Vec::new();
        loop {
            match batches.next().await {
                Ok(Some(batch)) => {
                    let body = String::from_utf8(batch.body.to_vec()).unwrap();
                    seen.push(Ok((body, batch.last)));
                }
                Ok(None) => return seen,
                Err(error) => {
                    seen.push(Err(error.to_string()));
                    return seen;
                }
            }
        }
    }

    #[tokio::test]
    async fn text_goes_line_by_line() {
        let seen = batches(false, &["a\n", "\n", "b"]).await;
        let expected = [("a\n", 1), ("\n", 2), ("b", 3)];
        assert_eq!(seen, expected.map(|(body, last)| Ok((body.to_owned(), last))));
    }

    #[tokio::test]
    async fn json_lines_travel_together_and_stay_apart() {
        let seen = batches(true, &["{\"a\":1}\n", "\n", " [1,2] \r\n", "3"]).await;
        assert_eq!(seen, [Ok(("[{\"a\":1},[1,2],3]".to_owned(), 4))]);
        assert_eq!(batches(true, &["\n", " \n"]).await, []);
    }

    #[tokio::test]
    async fn a_batch_ends_before_it_is_too_large() {
        let long = format!("\"{}\"", "x".repeat(BATCH_BYTES_MAX - 100));
        let seen = batches(true, &["1", &long, &long, "2"]).await;
        let lasts: Vec<u64> = seen.into_iter().map(|batch| batch.unwrap().1).collect();
        assert_eq!(lasts, [2, 4]);
    }

    #[tokio::test]
    async fn a_line_that_is_not_json_is_named() {
        let seen = batches(true, &["1\n", "oops\n"]).await;
        let sentence = seen[0].as_ref().unwrap_err();
        assert!(sentence.starts_with("line 2 is not JSON"), "{sentence}");
    }
}
