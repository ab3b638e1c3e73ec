//! Tests the requests of load balancers, probes and clients that do not ask as curl does.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::common::programs::is_there_or_report;
use crate::fixture::{Agent, BOUND, command, command_at, masters};
use redlock_testkit::{ChildGuard, eventually_blocking, free_port};

/// Sends the lines of a request, and returns status line, headers and body of the answer.
fn ask(address: impl Into<IpAddr>, port: u16, lines: &[&str]) -> (String, String, String) {
    let mut stream = TcpStream::connect((address.into(), port)).unwrap();
    write!(stream, "{}\r\n\r\n", lines.join("\r\n")).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    (status.to_owned(), headers.to_lowercase(), body.to_owned())
}

const LOCAL: [u8; 4] = [127, 0, 0, 1];

/// HAProxy asks by OPTIONS and HTTP/1.0 with `option httpchk`, others by HEAD or with a User-Agent.
#[test]
fn checks_of_load_balancers_have_the_status_of_get() {
    let (_servers, urls) = masters();
    let one = Agent::start("one", &urls);
    one.wait_active();
    let two = Agent::start("two", &urls);
    two.wait_knows("one");
    for (agent, status) in [(&one, "200"), (&two, "409")] {
        for lines in [
            &["OPTIONS /v1/active HTTP/1.0"][..],
            &[
                "OPTIONS /v1/active HTTP/1.1",
                "Host: web:8080",
                "Connection: close",
            ],
            &["HEAD /v1/active HTTP/1.0"],
            &["GET /v1/active HTTP/1.0", "User-Agent: kube-probe/1.36"],
            &[
                "GET /v1/active HTTP/1.1",
                "Host: 10.0.0.7",
                "Connection: close",
                "Accept: */*",
            ],
        ] {
            let (line, headers, body) = ask(LOCAL, agent.port, lines);
            assert_eq!(line.split(' ').nth(1), Some(status), "{lines:?}: {line}");
            let is_get = lines[0].starts_with("GET");
            assert_eq!(body.contains("\"role\""), is_get, "{lines:?}: {body}");
            let is_options = lines[0].starts_with("OPTIONS");
            assert_eq!(
                headers.contains("allow: get, head, options"),
                is_options,
                "{headers}"
            );
        }
    }
    for path in ["/", "/v1/lock", "/v1/watch", "/livez", "/readyz"] {
        let (line, _, body) = ask(LOCAL, one.port, &[&format!("OPTIONS {path} HTTP/1.0")]);
        assert_eq!(
            (line.split(' ').nth(1), body.as_str()),
            (Some("200"), ""),
            "{path}: {line}"
        );
    }
    // A browser asks so before it posts from another page.
    let preflight = [
        "OPTIONS /v1/step-down HTTP/1.0",
        "Origin: http://a",
        "Access-Control-Request-Method: POST",
    ];
    let (line, headers, _) = ask(LOCAL, one.port, &preflight);
    assert!(
        line.contains("405") && !headers.contains("access-control"),
        "{line}: {headers}"
    );
    assert_eq!(one.lock()["role"], "Active");
}

#[test]
fn localhost_is_served_on_both_loopback_addresses() {
    let (_servers, urls) = masters();
    let port = free_port().unwrap();
    let mut agent = command_at(&urls, &format!("localhost:{port}"));
    agent.args(["--identity", "one", "--lease-duration", "10s"]);
    let mut child = ChildGuard::spawn("one", &mut agent);
    child.wait_for_line(BOUND, "agent started");
    answers_at(LOCAL.into(), port, "GET /v1/active HTTP/1.0", "200");
    // First the one that the other tests do not use: an agent that is active steps down.
    let addresses = [IpAddr::from(Ipv6Addr::LOCALHOST), LOCAL.into()];
    for address in addresses {
        let has_address = TcpListener::bind((address, 0)).is_ok();
        assert!(has_address || address.is_ipv6());
        if has_address {
            let (status, _, body) = ask(address, port, &["GET /v1/lock HTTP/1.0"]);
            assert!(
                status.contains("200") && body.contains("\"role\""),
                "{address}: {status}"
            );
            answers_at(address, port, "POST /v1/step-down HTTP/1.0", "200");
        }
    }
    // A second agent is refused at both addresses, and one at a single address is not disturbed.
    let mut other = command(&urls, port);
    other.args(["--identity", "two"]);
    let mut refused = ChildGuard::spawn("two", &mut other);
    assert_eq!(refused.wait(BOUND).0.code(), Some(78));
}

/// Returns the block of docs/agent.md that contains this text.
fn of_page(text: &str) -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/agent.md")).unwrap();
    let block = page.split("```").find(|block| block.contains(text));
    let block = block.unwrap_or_else(|| panic!("no block with {text}"));
    block.trim_start_matches('\n').to_owned()
}

/// Starts a program with its configuration; `None` where it is not installed.
fn start(program: &str, folder: &Path, configuration: &str) -> Option<ChildGuard> {
    if !is_there_or_report(program, &format!("the lines for {program} in docs/agent.md")) {
        return None;
    }
    let file = folder.join("configuration");
    fs::write(&file, configuration).unwrap();
    let mut command = Command::new(program);
    match program {
        "haproxy" => command.args(["-db", "-f"]).arg(file),
        _ => command
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(file)
            .args(["-e", "stderr"]),
    };
    Some(ChildGuard::spawn(program, &mut command))
}

/// An app that answers each request with its name.
fn app(address: &str, port: u16, name: &'static str) {
    let listener = TcpListener::bind((address, port)).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut byte = [0];
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.extend(byte);
            }
            let _ = write!(
                stream,
                "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{name}",
                name.len()
            );
        }
    });
}

fn agent_at(name: &str, urls: &str, listen: &str) -> ChildGuard {
    let mut command = command_at(urls, listen);
    command.args(["--identity", name, "--lease-duration", "10s"]);
    let mut child = ChildGuard::spawn(name, &mut command);
    child.wait_for_line(BOUND, "agent started");
    child
}

/// Waits until a request to this address has this status. On a busy machine, the masters may answer a step-down too late.
fn answers_at(address: IpAddr, port: u16, line: &str, status: &str) {
    eventually_blocking(BOUND, &format!("{address}: {line}: {status}"), || {
        let (found, _, body) = ask(address, port, &[line]);
        assert!(!found.contains("403"), "{address}: {line}: {body}");
        if found.contains(status) {
            Ok(())
        } else {
            Err(format!("{found}: {body}"))
        }
    });
}

/// Waits until a request to this port has this status and body.
fn answers(port: u16, status: &str, body: &str) {
    eventually_blocking(BOUND, &format!("{status} {body}"), || {
        let Ok(stream) = TcpStream::connect((IpAddr::from(LOCAL), port)) else {
            return Err("no connection".to_owned());
        };
        drop(stream);
        let (line, _, found) = ask(LOCAL, port, &["GET / HTTP/1.0"]);
        let is_expected = line.contains(status) && found.contains(body);
        if is_expected {
            Ok(())
        } else {
            Err(format!("{line}: {found}"))
        }
    });
}

#[test]
fn haproxy_sends_requests_to_the_active_app() {
    let (_servers, urls) = masters();
    let folder = tempfile::tempdir().unwrap();
    let (front, apps, agents) = (free_port().unwrap(), free_port().unwrap(), free_port().unwrap());
    let backend = of_page("option httpchk")
        .replace("10.0.0.1:8080", &format!("127.0.0.1:{apps}"))
        .replace("10.0.0.2:8080", &format!("127.0.0.2:{apps}"))
        .replace("4040", &agents.to_string());
    let configuration = format!(
        "defaults\n  mode http\n  timeout connect 2s\n  timeout client 5s\n  timeout server 5s\nfrontend web\n  \
         bind 127.0.0.1:{front}\n  default_backend api\n{backend}\n"
    );
    let Some(proxy) = start("haproxy", folder.path(), &configuration) else {
        return;
    };
    app("127.0.0.1", apps, "app of one");
    app("127.0.0.2", apps, "app of two");
    let one = agent_at("one", &urls, &format!("127.0.0.1:{agents}"));
    answers(front, "200", "app of one");
    let _two = agent_at("two", &urls, &format!("127.0.0.2:{agents}"));
    one.signal(nix::sys::signal::Signal::SIGTERM);
    answers(front, "200", "app of two");
    drop(proxy);
}

#[test]
fn nginx_serves_the_app_beside_the_active_agent_alone() {
    let (_servers, urls) = masters();
    let folder = tempfile::tempdir().unwrap();
    let (front, apps, agents) = (free_port().unwrap(), free_port().unwrap(), free_port().unwrap());
    let locations = of_page("auth_request /active")
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{apps}"))
        .replace("4040", &agents.to_string());
    let paths =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {kind};"));
    let configuration = format!(
        "daemon off;\nuser root;\npid pid;\nworker_processes 1;\nevents {{}}\nhttp {{\naccess_log off;\n{}\nserver {{\nlisten \
         127.0.0.1:{front};\n{locations}\n}}\n}}\n",
        paths.join("\n")
    );
    let Some(proxy) = start("nginx", folder.path(), &configuration) else {
        return;
    };
    app("127.0.0.1", apps, "app");
    let other = Agent::start("other", &urls);
    other.wait_active();
    let _beside = agent_at("beside", &urls, &format!("127.0.0.1:{agents}"));
    answers(front, "500", "");
    other.step_down();
    answers(front, "200", "app");
    drop(proxy);
}
