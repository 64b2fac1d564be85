//! Heads and bodies as servers send them, whole, in pieces and broken.

use super::*;

const APPENDED: &[u8] = b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 0000000000000000_0000000000000016\r\nx-content-type-options: nosniff\r\n\r\n";

fn head(text: &str) -> Head {
    parse_head(text.as_bytes()).expect("well formed").expect("complete")
}

#[test]
fn an_append_is_answered_without_a_body() {
    let head = parse_head(APPENDED).unwrap().unwrap();
    assert_eq!(head.status, 204);
    assert_eq!(head.framing, Framing::Length(0));
    assert_eq!(head.head_bytes, APPENDED.len());
    assert!(head.is_keep_alive);
    assert!(!head.is_up_to_date);
    let offset = &APPENDED[head.next_offset.unwrap()];
    assert_eq!(offset, b"0000000000000000_0000000000000016");
}

#[test]
fn a_head_in_pieces_is_not_complete_until_its_last_byte() {
    for end in 0..APPENDED.len() {
        assert_eq!(parse_head(&APPENDED[..end]), Ok(None), "after {end} bytes");
    }
}

#[test]
fn bytes_after_the_head_are_left_alone() {
    let head = head("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]HTTP/1.1");
    assert_eq!((head.head_bytes, head.framing), (38, Framing::Length(2)));
}

#[test]
fn framing_follows_the_standard() {
    let check = |text: &str, framing| assert_eq!(head(text).framing, framing, "{text}");
    check("HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n", Framing::Length(17));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", Framing::Chunked);
    check("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose);
    check("HTTP/1.1 304 Not Modified\r\ncontent-length: 17\r\n\r\n", Framing::Length(0));
    check("HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n", Framing::Length(0));
}

#[test]
fn the_few_headers_are_read_whatever_their_case_and_spacing() {
    let text = "HTTP/1.1 200 OK\r\nSTREAM-UP-TO-DATE:true\r\nstream-cursor:  42 \r\nConnection: Close\r\ncontent-length:0\r\n\r\n";
    let head = head(text);
    assert!(head.is_up_to_date);
    assert!(!head.is_keep_alive);
    assert_eq!(&text[head.cursor.unwrap()], "42");
    assert_eq!(head.framing, Framing::Length(0));
}

#[test]
fn what_is_not_http_is_refused() {
    for text in [
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
    ] {
        assert_eq!(parse_head(text.as_bytes()), Err(ParseError), "{text}");
    }
}

/// Feeds the bytes in pieces of the given size; the body, and what was left over after its end.
fn read(framing: Framing, bytes: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>), ParseError> {
    let mut body = Body::new(framing);
    let mut data = Vec::new();
    let mut waiting: Vec<u8> = Vec::new();
    let mut pieces = bytes.chunks(piece);
    loop {
        let step = body.decode(&waiting)?;
        data.extend_from_slice(step.data);
        let (used, done) = (step.used, step.is_end);
        waiting.drain(..used);
        if done {
            waiting.extend(pieces.flatten());
            return Ok((data, waiting));
        }
        if used == 0 {
            waiting.extend_from_slice(pieces.next().expect("the body ends before its bytes do"));
        }
    }
}

#[test]
fn a_body_is_the_same_however_it_arrives() {
    let chunked =
        b"5\r\nhello\r\n1;name=value\r\n,\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nNEXT";
    let sized = b"hello,0123456789NEXT";
    for piece in 1..chunked.len() + 1 {
        let (data, rest) = read(Framing::Chunked, chunked, piece).unwrap();
        assert_eq!(data, b"hello,0123456789", "chunked, in pieces of {piece}");
        assert_eq!(rest, b"NEXT", "chunked, in pieces of {piece}");
        let (data, rest) = read(Framing::Length(16), sized, piece).unwrap();
        assert_eq!((data.as_slice(), rest.as_slice()), (&b"hello,0123456789"[..], &b"NEXT"[..]));
    }
}

#[test]
fn broken_chunks_are_refused() {
    for bytes in
        [&b"\r\nhello"[..], b"xyz\r\n", b";ext\r\n", b"5\r\nhelloworld", b"1234567890abcdef0\r\n"]
    {
        assert_eq!(read(Framing::Chunked, bytes, 4), Err(ParseError), "{bytes:?}");
    }
}

#[test]
fn a_body_until_close_never_ends_by_itself() {
    let mut body = Body::new(Framing::UntilClose);
    assert_eq!(body.decode(b"abc"), Ok(BodyStep { data: b"abc", used: 3, is_end: false }));
    assert_eq!(body.decode(b""), Ok(BodyStep { data: b"", used: 0, is_end: false }));
}

#[test]
fn a_request_has_a_path_and_without_a_length_no_body() {
    let bytes = b"POST /live?x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
    let (head, path) = parse_request(bytes).unwrap().unwrap();
    assert_eq!(&bytes[path], b"/live?x");
    assert_eq!((head.framing, head.head_bytes), (Framing::Length(2), bytes.len() - 2));
    for short in 0..bytes.len() - 2 {
        assert_eq!(parse_request(&bytes[..short]), Ok(None), "{short}");
    }
    let (head, _) = parse_request(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap().unwrap();
    assert_eq!((head.framing, head.is_keep_alive), (Framing::Length(0), false));
    for text in ["GET /\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "GET HTTP/1.1\r\n\r\n"] {
        assert_eq!(parse_request(text.as_bytes()), Err(ParseError), "{text}");
    }
}
