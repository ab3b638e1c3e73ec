//! A name server that knows one name.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const A: u16 = 1;
const NAME_ERROR: u8 = 3;
/// The longest time until the server notices that it must end.
const TICK: Duration = Duration::from_millis(50);

/// Listens on port 53 of a separate loopback address, because a resolv.conf cannot name a port. Ends on drop.
pub struct NameServer {
    pub address: Ipv4Addr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts a server that answers 127.0.0.1 for this name, and that any other name does not exist.
    pub fn start(name: &str) -> Self {
        let [.., high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 53, high, low);
        let socket = UdpSocket::bind(SocketAddrV4::new(address, 53)).expect("port 53, which only root has");
        socket.set_read_timeout(Some(TICK)).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let (name, ended) = (name.to_owned(), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let mut question = [0; 512];
            while !ended.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut question)
                    && let Some(answer) = answer(&question[..length], &name)
                {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self {
            address,
            ends,
            thread: Some(thread),
        }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns `None` for a packet that is not a question.
fn answer(question: &[u8], known: &str) -> Option<Vec<u8>> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(question.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes(question.get(at..at + 2)?.try_into().ok()?);
    let asked = question.get(12..at + 4)?;
    let is_known = labels.join(".") == known;
    let has_address = is_known && kind == A;
    let code = if is_known { 0 } else { NAME_ERROR };
    let mut answer = question[..2].to_vec();
    // A response with recursion, one question, and one answer or none.
    answer.extend([0x81, 0x80 | code, 0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    answer.extend(asked);
    if has_address {
        // A pointer to the name at offset 12, type A, class IN, a TTL of 5 s.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
        answer.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Some(answer)
}
