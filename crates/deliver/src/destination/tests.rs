//! Tables of URLs: what is accepted, and what is refused for which reason.

use super::*;

fn strict() -> Rules {
    Rules::default()
}

fn local() -> Rules {
    Rules { allow_http_loopback: true, private_networks: Vec::new() }
}

fn private() -> Rules {
    let networks = ["10.0.0.0/8", "fd00::/8", "0.0.0.0/8", "127.0.0.0/8"];
    let private_networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    Rules { allow_http_loopback: false, private_networks }
}

fn check(rules: &Rules, accepted: &[&str]) {
    for text in accepted {
        let destination = Destination::parse(text, rules);
        assert_eq!(destination.as_ref().map(Destination::as_str), Ok(*text));
    }
}

fn check_refused(rules: &Rules, error: &DestinationError, refused: &[&str]) {
    for text in refused {
        assert_eq!(Destination::parse(text, rules).as_ref(), Err(error), "{text}");
    }
}

#[test]
fn https_to_public_hosts_is_accepted() {
    check(
        &strict(),
        &[
            "https://example.com",
            "https://example.com/",
            "https://example.com?a=b",
            "HTTPS://Example.COM/Path?query=1&x=%20",
            "https://example.com:8443/hook",
            "https://xn--bcher-kva.example/",
            "https://a_b.example.com//twice//",
            "https://1.1.1.1/",
            "https://[2606:4700::1111]:8443/",
            "https://1password.example/",
            "https://0x7f.example/",
            "https://localhost.example.com/",
        ],
    );
}

#[test]
fn this_machine_is_accepted_when_allowed_and_under_its_own_names() {
    let own = [
        "http://localhost:3000/x",
        "http://LOCALHOST/",
        "http://127.0.0.1:1/",
        "http://127.9.9.9/",
        "http://[::1]:80/",
        "https://localhost/",
        "https://127.0.0.1/",
    ];
    check(&local(), &own);
    check_refused(&strict(), &DestinationError::Loopback, &own);
    // To list 127.0.0.0/8 as a private network is not the same as allowing loopback.
    check_refused(&private(), &DestinationError::Loopback, &own);
    for rules in [strict(), local()] {
        check_refused(
            &rules,
            &DestinationError::Insecure,
            &["http://localhost.example.com/", "http://local/", "http://example.com/"],
        );
    }
}

#[test]
fn allowed_networks_are_accepted_by_address_also_without_tls() {
    let addresses =
        ["http://10.1.2.3/", "https://10.1.2.3/", "http://[fd00::1]:8080/", "https://[fd12::1]/"];
    check(&private(), &addresses);
    check(&private(), &["http://[::ffff:10.1.2.3]/"]);
    check(&private(), &["https://internal.example/"]);
    let insecure = ["http://internal.example/", "http://1.1.1.1/", "http://[2606:4700::1111]/"];
    check_refused(&private(), &DestinationError::Insecure, &insecure);
}

#[test]
fn addresses_that_are_not_public_are_refused() {
    for (literal, address) in [
        ("10.0.0.1", "10.0.0.1"),
        ("172.16.0.1", "172.16.0.1"),
        ("192.168.0.1", "192.168.0.1"),
        ("100.64.0.1", "100.64.0.1"),
        ("169.254.169.254", "169.254.169.254"),
        ("0.0.0.0", "0.0.0.0"),
        ("255.255.255.255", "255.255.255.255"),
        ("[::]", "::"),
        ("[fd00:ec2::254]", "fd00:ec2::254"),
        ("[fe80::1]", "fe80::1"),
        ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
        ("[::ffff:7f00:1]", "::ffff:127.0.0.1"),
        ("[::ffff:169.254.169.254]", "::ffff:169.254.169.254"),
        ("[::127.0.0.1]", "::127.0.0.1"),
        ("[64:ff9b::7f00:1]", "64:ff9b::7f00:1"),
        ("[2002:7f00:1::]", "2002:7f00:1::"),
    ] {
        let error = DestinationError::AddressRefused(address.parse().unwrap());
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{literal}/");
            check_refused(&strict(), &error, &[&url]);
            check_refused(&local(), &error, &[&url]);
        }
    }
}

#[test]
fn this_machine_hides_in_no_allowed_network() {
    for literal in ["0.0.0.0", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::"] {
        let address: IpAddr = literal.parse().unwrap();
        let host = if address.is_ipv6() { format!("[{literal}]") } else { literal.to_owned() };
        let url = format!("http://{host}/");
        check_refused(&private(), &DestinationError::AddressRefused(address), &[&url]);
    }
}

#[test]
fn unusual_forms_of_addresses_are_refused_and_never_names() {
    for rules in [strict(), local(), private()] {
        check_refused(
            &rules,
            &DestinationError::UnusualAddress,
            &[
                "http://2130706433/",
                "https://2130706433/",
                "https://0x7f000001/",
                "https://0x7f.1/",
                "https://0x7F.0.0.0x1/",
                "https://0X7F.1/",
                "https://127.1/",
                "https://127.0.1/",
                "https://0177.0.0.1/",
                "https://127.0.0.01/",
                "https://017700000001/",
                "https://127.0.0.256/",
                "https://1.2.3.4.5/",
                "https://example.1/",
                "https://0x/",
                "https://99999999999999999999/",
            ],
        );
        check_refused(
            &rules,
            &DestinationError::BadHost,
            &["https://127.0.0.1./", "https://localhost./", "https://%31%32%37.0.0.%31/"],
        );
    }
}

#[test]
fn malformed_urls_are_refused_with_the_reason() {
    let check = |error, refused: &[&str]| check_refused(&local(), &error, refused);
    check(
        DestinationError::BadScheme,
        &[
            "",
            "/path",
            "example.com",
            "//example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "https:/example.com",
            " https://example.com",
            "gopher://127.0.0.1:6379/",
        ],
    );
    check(
        DestinationError::UserInfo,
        &[
            "https://user@example.com/",
            "https://user:pass@example.com/",
            "https://@example.com/",
            "http://localhost:1@example.com/",
            "https://example.com\\@localhost/",
        ],
    );
    check(
        DestinationError::Fragment,
        &["https://example.com/#", "https://example.com#x", "https://a.b/?q#f"],
    );
    check(DestinationError::NoHost, &["https://", "https:///path", "https://:443/", "https://?q"]);
    check(DestinationError::HostNotAscii, &["https://bücher.example/", "https://127。0。0。1/"]);
    check(
        DestinationError::BadPort,
        &[
            "https://example.com:0/",
            "https://example.com:/",
            "https://example.com:65536/",
            "https://example.com:+80/",
            "https://example.com:80a/",
            "https://[::1]:/",
            "https://[::1]:00/",
        ],
    );
    check(
        DestinationError::BadHost,
        &[
            "https://exa..mple/",
            "https://.example/",
            "https://exa%6Dple.com/",
            "https://[::1/",
            "https://::1]/",
            "https://[::1]x/",
            "https://[fe80::1%eth0]/",
            "https://[1.2.3.4]/",
            "https://a:b:443/",
            "https://exa*mple.com/",
            "https://exa,mple.com/",
        ],
    );
    check(
        DestinationError::BadCharacter,
        &[
            "https://example.com/a b",
            "https://example.com/ü",
            "https://example.com/a\\b",
            "https://example.com/\r\nx: y",
            "https://exam ple.com/",
            "https://example.com\\x/",
            "https://example.com\n/",
            "https://example.com/\u{7f}",
        ],
    );
    check(DestinationError::BadPath, &["https://example.com/<script>"]);
}

#[test]
fn the_lengths_have_limits() {
    let fits = format!("https://example.com/{}", "x".repeat(URL_BYTES_MAX - 20));
    assert_eq!(fits.len(), URL_BYTES_MAX);
    check(&strict(), &[&fits]);
    check_refused(&strict(), &DestinationError::TooLong, &[&format!("{fits}x")]);
    let label = format!("https://{}.example/", "x".repeat(64));
    let name = format!("https://{}example/", "x.".repeat(130));
    check_refused(&strict(), &DestinationError::BadHost, &[&label, &name]);
}

#[test]
fn the_request_line_and_the_host_header_are_taken_from_the_url() {
    let check = |url: &str, target: &str, authority: &str, port: u16| {
        let destination = Destination::parse(url, &local()).unwrap();
        assert_eq!(destination.target().to_string(), target, "{url}");
        assert_eq!(destination.authority(), authority, "{url}");
        assert_eq!(destination.origin().port, port, "{url}");
    };
    check("https://Example.com", "/", "example.com", 443);
    check("https://example.com?a=b", "/?a=b", "example.com", 443);
    check("http://localhost/A?b=%2F", "/A?b=%2F", "localhost", 80);
    check("http://[::1]:8080/a/../b", "/a/../b", "[::1]:8080", 8080);
    check("https://example.com//other.example/x", "//other.example/x", "example.com", 443);
}

#[test]
fn hosts_share_connections_whatever_their_case() {
    let origin = |url: &str| Destination::parse(url, &local()).unwrap().origin().clone();
    assert_eq!(origin("https://Example.com/a"), origin("https://example.COM:443/b"));
    assert_ne!(origin("https://localhost:80/"), origin("http://localhost:80/"));
    assert_ne!(origin("http://localhost:80/"), origin("http://localhost:81/"));
}

#[test]
fn the_guard_wants_loopback_hosts_and_loopback_addresses_together() {
    let check = |rules: &Rules, host: &str, address: &str, permitted: bool| {
        let host = Host::parse(host).unwrap();
        assert_eq!(
            rules.is_allowed(&host, address.parse().unwrap()),
            permitted,
            "{host:?} {address}"
        );
    };
    check(&strict(), "example.com", "1.1.1.1", true);
    check(&strict(), "example.com", "127.0.0.1", false);
    check(&strict(), "localhost", "127.0.0.1", false);
    check(&local(), "localhost", "127.0.0.1", true);
    check(&local(), "localhost", "::1", true);
    check(&local(), "localhost", "::ffff:127.0.0.1", true);
    check(&local(), "localhost", "1.1.1.1", false);
    check(&local(), "localhost", "0.0.0.0", false);
    check(&local(), "example.com", "127.0.0.1", false);
    check(&local(), "example.com", "::1", false);
    check(&local(), "example.com", "::ffff:127.0.0.1", false);
    check(&local(), "example.com", "10.0.0.1", false);
    check(&private(), "example.com", "10.0.0.1", true);
    check(&private(), "example.com", "127.0.0.1", false);
    check(&private(), "example.com", "0.0.0.0", false);
    check(&private(), "localhost", "10.0.0.1", false);
}
