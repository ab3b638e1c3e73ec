//! Chooses free ports for servers that are killed and restarted on the same port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use super::RedisServerError;

/// Below the range from which Linux and macOS take the ports of outgoing connections. Port 0 would give a port of that
/// range, and a client that redials a dead server there can get the very port that it calls: the client then connects
/// to itself, and the server cannot bind the port.
const FIRST: u16 = 20_000;
const BLOCKS: u16 = 240;
/// The ports of a block. A program that needs more claims another block.
const BLOCK: u16 = 50;

/// The ports of this process. A listener on the first port of a block keeps other programs out of the block: a port is
/// free between its choice and the start of its server, and while its server is dead.
struct Ports {
    blocks: Vec<(u16, TcpListener)>,
    /// The index of the current block, and the next port in it.
    block: usize,
    offset: u16,
}

static PORTS: Mutex<Ports> = Mutex::new(Ports::new());

/// Returns a loopback port that nothing listens on now, and that no other program gets from this function while this
/// process runs. Within one process no port is given twice before all blocks are claimed.
pub fn free_port() -> Result<u16, RedisServerError> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner).next_port()
}

impl Ports {
    const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            block: 0,
            offset: 1,
        }
    }

    fn next_port(&mut self) -> Result<u16, RedisServerError> {
        for _ in 0..BLOCKS * BLOCK {
            if self.offset == BLOCK {
                (self.block, self.offset) = (self.block + 1, 1);
            }
            if self.block == self.blocks.len() && !self.claim() {
                // The ports that were given first are the least likely to be in use.
                self.block = 0;
            }
            let Some((first, _)) = self.blocks.get(self.block) else {
                break;
            };
            let port = first + self.offset;
            self.offset += 1;
            if bind(port).is_some() {
                return Ok(port);
            }
        }
        Err(RedisServerError::NoPort {
            tried: BLOCKS * BLOCK,
            first: FIRST,
            last: FIRST + BLOCKS * BLOCK - 1,
        })
    }

    /// Claims a block; returns false if none is free. Programs that run at the same time begin their search at different
    /// blocks.
    fn claim(&mut self) -> bool {
        let start = fastrand::u16(0..BLOCKS);
        let mut firsts = (0..BLOCKS).map(|index| FIRST + (start + index) % BLOCKS * BLOCK);
        let claimed = firsts.find_map(|first| Some((first, bind(first)?)));
        let found = claimed.is_some();
        self.blocks.extend(claimed);
        found
    }
}

fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut ports: Vec<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
    }

    #[test]
    fn a_port_in_use_is_not_given() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!((0..200).all(|_| free_port().unwrap() != port));
    }

    #[test]
    fn two_programs_get_no_port_of_the_same_block() {
        let mut programs = [Ports::new(), Ports::new()];
        let blocks = programs.each_mut().map(|ports| {
            let given = (0..100).map(|_| (ports.next_port().unwrap() - FIRST) / BLOCK);
            given.collect::<BTreeSet<_>>()
        });
        assert!(blocks[0].is_disjoint(&blocks[1]), "{blocks:?}");
    }
}
