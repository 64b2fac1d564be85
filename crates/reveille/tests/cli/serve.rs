//! `reveille serve`: starting, refusing to start, stopping, and coming back.

use std::fs;
use std::io::{Read as _, Write as _};

use rustix::process::Signal;

use crate::process::{Server, reveille, run, run_with};

#[test]
fn it_starts_with_an_address_and_stops_when_told() {
    let mut server = Server::start();
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    let answer = server.request("GET /healthz HTTP/1.1", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.terminate();
    assert_eq!(server.process.out.next(), None, "nothing else goes to standard output");
    // The log is JSON when nobody sits in front of it.
    let ready = server.process.err.until("\"ready\"");
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["level"], "INFO");
    assert_eq!(format!("http://{}", ready["address"].as_str().unwrap()), server.url);
    server.process.err.until("\"stopped\"");
}

#[test]
fn the_log_can_be_filtered() {
    for variable in ["REVEILLE_LOG_FILTER", "RUST_LOG"] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = reveille(&["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(directory.path()).env(variable, "error");
        let mut process = crate::process::Running::start(command);
        process.out.until("listening on");
        process.signal(Signal::INT);
        assert_eq!(process.wait().code(), Some(0));
        assert_eq!(process.err.next(), None);
    }
    let mut command = reveille(&["serve"]);
    command.env("RUST_LOG", "no=such=level");
    let sentence = run_with(command, b"").error(2);
    assert!(sentence.contains("RUST_LOG"), "{sentence}");
}

/// The program with a limit of open files that it cannot raise.
fn with_descriptors(limit: u32, directory: &std::path::Path) -> std::process::Command {
    let server = reveille(&[]);
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\""));
    command.arg(server.get_program()).args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(directory).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    for (name, value) in server.get_envs().filter(|(_, value)| value.is_none()) {
        assert_eq!(value, None);
        command.env_remove(name);
    }
    command
}

#[test]
fn more_sockets_than_it_may_open_do_not_end_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = with_descriptors(128, directory.path());
    // Segments are small, so that the log needs files while strangers hold all others.
    command.args(["--log-segment-bytes", "1MiB", "--max-body", "256KiB"]);
    let mut process = crate::process::Running::start(command);
    let lowered = process.err.until("--outbound-concurrency is lowered");
    assert!(lowered.contains("ulimit -Hn"), "{lowered}");
    let line = process.out.until("listening on");
    let url = line.rsplit(' ').next().unwrap().to_owned();
    let address = url.strip_prefix("http://").unwrap();
    let mut silent = Vec::new();
    for round in 0..40 {
        for _ in 0..5 {
            silent.push(std::net::TcpStream::connect(address).unwrap());
        }
        let mut append = reveille(&["append", "--url", &url, "/kept", "-"]);
        append.env("REVEILLE_URL", &url);
        run_with(append, &vec![b'x'; 200_000]).ok();
        assert!(round < 39 || silent.len() == 200);
    }
    process.signal(Signal::INT);
    assert_eq!(process.wait().code(), Some(0));
}

#[test]
fn with_far_too_few_descriptors_it_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let sentence = run_with(with_descriptors(64, directory.path()), b"").error(1);
    assert!(sentence.contains("64 files open") && sentence.contains("LimitNOFILE"), "{sentence}");
}

#[test]
fn what_was_answered_is_there_after_kill_9() {
    let mut server = Server::start();
    for round in 0..3 {
        server.run(&["append", "/kept", &format!("round {round}\n")]).ok();
        server.kill();
        server.restart();
    }
    assert_eq!(server.run(&["read", "/kept"]).ok(), "round 0\nround 1\nround 2\n");
    server.terminate();
    server.restart();
    assert_eq!(server.run(&["read", "/kept"]).ok(), "round 0\nround 1\nround 2\n");
}

/// A request whose head has arrived, with half of its body.
fn half_sent(server: &Server) -> std::net::TcpStream {
    let answer = server.request("PUT /half HTTP/1.1\r\ncontent-type: text/plain", "");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let mut socket = server.connect();
    // `100 Continue` tells that the server has begun to read the body.
    let head = "POST /half HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n\
                expect: 100-continue\r\ncontent-length: 8\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let mut go_on = [0; 25];
    socket.read_exact(&mut go_on).unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100 Continue"));
    socket.write_all(b"half").unwrap();
    socket
}

#[test]
fn a_request_that_was_begun_is_finished() {
    let mut server = Server::start();
    let mut socket = half_sent(&server);
    server.process.signal(Signal::TERM);
    server.process.err.until("stopping");
    socket.write_all(b"half").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert_eq!(server.process.wait().code(), Some(0));
    server.restart();
    assert_eq!(server.run(&["read", "/half"]).ok(), "halfhalf");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start();
    let _socket = half_sent(&server);
    server.process.signal(Signal::INT);
    server.process.err.until("stopping");
    server.process.signal(Signal::INT);
    assert_eq!(server.process.wait().code(), Some(130));
}

#[test]
fn a_data_directory_has_one_server() {
    let server = Server::start();
    let data = server.data();
    let data = data.to_str().unwrap();
    let sentence = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data]).error(1);
    assert!(sentence.starts_with("another reveille server uses"), "{sentence}");
    // The first one does not notice.
    server.run(&["append", "/a", "x"]).ok();
}

#[test]
fn an_address_has_one_server() {
    let server = Server::start();
    let other = tempfile::tempdir().unwrap();
    let other = other.path().join("data");
    let listen = ["serve", "--listen", server.address(), "--data-dir"];
    let mut command = reveille(&listen);
    command.arg(&other);
    let sentence = run_with(command, b"").error(1);
    assert!(sentence.starts_with("cannot listen on 127.0.0.1:"), "{sentence}");
    assert!(sentence.contains("--listen"), "{sentence}");
    assert!(!other.exists(), "nothing is created for a server that does not start");
}

#[test]
fn a_newer_or_foreign_data_directory_is_left_alone() {
    let mut server = Server::start();
    server.terminate();
    let data = server.data();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let format = data.join("format");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, text.replace("format 5", "format 99")).unwrap();
    let sentence = run(&serve).error(1);
    assert!(sentence.contains("newer reveille (format 99"), "{sentence}");
    fs::write(&format, &text).unwrap();
    let sentence = run(&[&serve[..], &["--partitions", "2"]].concat()).error(1);
    assert!(sentence.contains("created with 1 partitions"), "{sentence}");
    fs::remove_file(&format).unwrap();
    let sentence = run(&serve).error(1);
    assert!(sentence.contains("not a reveille data directory"), "{sentence}");
}

#[test]
fn nobody_is_let_in_by_accident() {
    let sentence = run(&["serve", "--listen", "0.0.0.0:0"]).error(2);
    assert!(sentence.contains("not a loopback address"), "{sentence}");
    assert!(sentence.contains("--insecure"), "{sentence}");
    let sentence = run(&["serve", "--admin-key", "0123456789abcdef"]).error(2);
    assert!(sentence.contains("of no use without --auth keys"), "{sentence}");
    let sentence = run(&["serve", "--max-body", "33MiB"]).error(2);
    assert!(sentence.contains("at most 32MiB"), "{sentence}");
}

#[test]
fn flags_come_before_variables_before_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.toml");
    // Addresses that are refused: the sentence names the one that counted.
    fs::write(&file, "listen = \"10.0.0.1:1\"").unwrap();
    let check = |variable: bool, flag: bool, counted: &str| {
        let mut command = reveille(&["serve", "--config"]);
        command.arg(&file);
        if variable {
            command.env("REVEILLE_LISTEN", "10.0.0.2:1");
        }
        if flag {
            command.args(["--listen", "10.0.0.3:1"]);
        }
        let sentence = run_with(command, b"").error(2);
        assert!(sentence.starts_with(counted), "{sentence}");
    };
    check(false, false, "10.0.0.1:1 ");
    check(true, false, "10.0.0.2:1 ");
    check(true, true, "10.0.0.3:1 ");
    check(false, true, "10.0.0.3:1 ");
}

#[test]
fn a_configuration_file_is_read_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.toml");
    let data = directory.path().join("data");
    let path = file.to_str().unwrap();
    let sentence = run(&["serve", "--config", path]).error(1);
    assert!(sentence.contains("cannot read the configuration file"), "{sentence}");
    fs::write(&file, "data_dir = \"x\"").unwrap();
    let sentence = run(&["serve", "--config", path]).error(2);
    assert!(sentence.contains("it is written \"data-dir\""), "{sentence}");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata-dir = {data:?}\ndurability = \"os\"\nmax-body = 4\n"
    );
    fs::write(&file, text).unwrap();
    let mut command = reveille(&["serve"]);
    command.env("REVEILLE_CONFIG", &file);
    let process = crate::process::Running::start(command);
    let url = process.out.until("listening on").split_off("listening on ".len());
    process.err.until("--durability os: an answer means");
    run(&["append", "/a", "1234", "--url", &url]).ok();
    let sentence = run(&["append", "/a", "12345", "--url", &url]).error(1);
    assert!(sentence.contains("larger than 4 bytes"), "{sentence}");
    assert!(data.join("format").exists());
}
