use std::future::Future;

use redlock_client::clock::virtual_time;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use super::*;

const LATENCY: Latency = Latency::milliseconds(1, 5);

async fn pair() -> (Network, Connection, Connection) {
    let network = Network::new(7, LATENCY);
    let mut listener = network.party("m0").listen("m0", 6379).unwrap();
    let party = network.party("eu/r1");
    let (own, (remote, from)) = tokio::join!(party.connect("m0", 6379), listener.accept());
    assert_eq!(from, "eu/r1");
    (network, own.unwrap(), remote)
}

async fn read(connection: &mut Connection) -> String {
    let mut bytes = [0; 64];
    let count = connection.read(&mut bytes).await.unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

/// Returns whether the future hangs for an hour.
async fn hangs<T>(future: impl Future<Output = T>) -> bool {
    timeout(Duration::from_secs(3_600), future).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_in_order_after_the_latency() {
    let (_network, mut own, mut remote) = pair().await;
    let begun = Instant::now();
    for word in ["a", "b", "c"] {
        own.write_all(word.as_bytes()).await.unwrap();
    }
    let mut all = String::new();
    while all.len() < 3 {
        all += &read(&mut remote).await;
    }
    assert_eq!(all, "abc");
    assert!((1..=6).contains(&begun.elapsed().as_millis()));
    drop(own);
    assert_eq!(read(&mut remote).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_cut_holds_what_is_sent_until_it_is_healed() {
    let (network, mut own, mut remote) = pair().await;
    own.write_all(b"in flight").await.unwrap();
    network.cut_one_way("eu/r1", "m0", Cut::Hang);
    own.write_all(b", held").await.unwrap();
    assert!(hangs(read(&mut remote)).await);
    remote.write_all(b"the other way").await.unwrap();
    assert_eq!(read(&mut own).await, "the other way");
    network.heal("eu/r1", "m0");
    assert_eq!(read(&mut remote).await, "in flight, held");
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_across_a_cut_hangs_or_is_refused() {
    let network = Network::new(7, LATENCY);
    let mut listener = network.party("m0").listen("m0", 6379).unwrap();
    let party = network.party("eu/r1");
    network.cut("eu/r1", "m0", Cut::Refuse);
    let refused = party.connect("m0", 6379).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    network.cut("eu/r1", "m0", Cut::Hang);
    assert!(hangs(party.connect("m0", 6379)).await);
    let healed = async {
        time::sleep(Duration::from_secs(5)).await;
        network.heal_all();
    };
    let (own, ..) = tokio::join!(party.connect("m0", 6379), healed, listener.accept());
    assert!(own.is_ok());
    drop(listener);
    let refused = party.connect("m0", 6379).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_both_sides_with_an_error() {
    let (network, mut own, mut remote) = pair().await;
    network.reset("eu/r1", "m0");
    for connection in [&mut own, &mut remote] {
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    assert_eq!(network.connections("eu/r1", "m0"), 1);
    drop((own, remote));
    assert_eq!(network.connections("eu/r1", "m0"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_while_the_reader_does_not_read() {
    let (_network, mut own, mut remote) = pair().await;
    let much = vec![7; 1024 * 1024];
    assert!(hangs(own.write_all(&much)).await);
    let mut buffer = vec![0; 64 * 1024];
    assert!(remote.read(&mut buffer).await.unwrap() > 0);
    drop(remote);
    let error = own.write_all(&much).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn the_transport_of_a_party_connects_by_host_and_by_address() {
    let _clocks = virtual_time::install();
    let network = Network::new(7, LATENCY);
    let mut listener = network.party("eu/r2").listen("10.0.0.2", 8080).unwrap();
    let transport = network.party("eu/r1").transport();
    for by_address in [false, true] {
        let connecting = async {
            if by_address {
                transport.connect_to("10.0.0.2:8080".parse().unwrap()).await
            } else {
                transport.connect("10.0.0.2", 8080).await
            }
        };
        let (stream, (mut remote, _)) = tokio::join!(connecting, listener.accept());
        let mut stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(read(&mut remote).await, "hello");
    }
}
