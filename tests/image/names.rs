//! Tests that names resolve in the image, which contains no library for name resolution.

use crate::container::{Container, text_of};
use crate::nameserver::NameServer;
use crate::replica::servers;

/// A Service, by the name that a pod in its namespace may use.
const SERVICE: &str = "redis-0.redis";
const NAME: &str = "redis-0.redis.redlock.svc.cluster.local";

#[test]
#[ignore = "builds the image: `make test-image`"]
fn the_name_of_a_service_is_found_by_the_name_server() {
    let nameserver = NameServer::start(NAME);
    let container = Container::new();
    // The file has the form in which a kubelet writes it.
    container.write(
        "etc/resolv.conf",
        &format!(
            "search redlock.svc.cluster.local svc.cluster.local cluster.local\nnameserver {}\noptions ndots:5\n",
            nameserver.address
        ),
    );
    reached_by(&container, SERVICE, true);
    reached_by(&container, NAME, true);
    reached_by(&container, "redis-1.redis", false);
}

#[test]
#[ignore = "builds the image: `make test-image`"]
fn a_name_of_the_hosts_file_is_found() {
    let container = Container::new();
    container.write("etc/hosts", "127.0.0.1 localhost\n127.0.0.1 redis-a.test\n");
    reached_by(&container, "redis-a.test", true);
}

/// Asserts whether new masters can be reached and sealed by this name.
fn reached_by(container: &Container, name: &str, wanted: bool) {
    let servers = servers(3);
    let urls: Vec<String> = servers
        .iter()
        .map(|server| server.url().replace("127.0.0.1", name))
        .collect();
    let output = container.run(&["init", "--masters", &urls.join(",")]);
    assert_eq!(output.status.success(), wanted, "{name}: {}", text_of(&output));
}
