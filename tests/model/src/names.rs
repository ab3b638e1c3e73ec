//! One name, two servers: a promoted replica, or another server behind a DNS name, is sealed as m0 while some clients still
//! reach the server before it.
//!
//! Servers 0 and 1 are both called m0; 2 and 3 are m1 and m2. A client reaches one of the two. A lease ends at a server
//! only after its holder has ended, so that two leases at once mean two holders at once. Late commands and
//! masters that lose their memory are left out: the other model has them.
//!
//! A register of members (`m0 = the new server`, at m1 and m2) is explored in the two orders that are possible: before the
//! wait of the seal, and after it.

mod world;

use std::time::Instant;

use stateright::{Checker, Model};

const ATTEMPTS: usize = 3;
const NAMES: usize = 3;
const MAJORITY: u32 = 2;
const PROMISE: &str = "one holder, tokens rise";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Writes the new member to this server.
    Register(usize),
    StartWait,
    EndWait,
    Read(usize),
    Seal,
}

/// When the new member is registered relative to the wait of the seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    Absent,
    AfterTheWait,
    BeforeTheWait,
}

impl Register {
    fn steps(self) -> &'static [Step] {
        use Step::{EndWait, Read, Seal, StartWait};
        match self {
            Self::Absent => &[StartWait, EndWait, Read(2), Read(3), Seal],
            Self::AfterTheWait => &[
                StartWait,
                EndWait,
                Step::Register(2),
                Step::Register(3),
                Read(2),
                Read(3),
                Seal,
            ],
            Self::BeforeTheWait => &[
                Step::Register(2),
                Step::Register(3),
                StartWait,
                EndWait,
                Read(2),
                Read(3),
                Seal,
            ],
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    sealed: bool,
    counter: u8,
    /// The attempt that has the lease, and the granted number.
    lease: Option<(u8, u8)>,
    knows_new_member: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Unborn,
    Granting,
    Confirming(u8),
    Held(u8),
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Attempt {
    phase: Phase,
    /// Whether the client of the attempt reaches the new server as m0.
    new_view: bool,
    asked: u8,
    numbers: [u8; NAMES],
    acks: u8,
    /// Whether a reply named the new member.
    knows_new_member: bool,
    renewing: bool,
    /// Whether the renewal began after the wait, so that the wait does not have to outlast it.
    clears_wait: bool,
    after: u8,
}

impl Attempt {
    fn server(&self, name: usize) -> usize {
        match name {
            0 => usize::from(self.new_view),
            _ => name + 1,
        }
    }

    /// Counts the names whose vote counts: the former server of a name has none after a reply named the new one.
    fn counted(&self, names: u8) -> u32 {
        let superseded = u8::from(self.knows_new_member && !self.new_view);
        (names & !superseded).count_ones()
    }

    fn counts(&self, name: usize) -> bool {
        self.counted(1 << name) == 1
    }

    fn is_active(&self) -> bool {
        matches!(
            self.phase,
            Phase::Granting | Phase::Confirming(_) | Phase::Held(_)
        )
    }

    fn granted(&self) -> impl Iterator<Item = u8> + '_ {
        (0..NAMES)
            .filter(|name| self.counts(*name))
            .map(|name| self.numbers[name])
            .filter(|number| *number > 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Broken {
    TwoHolders,
    TokenTwice,
    TokenWentBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    servers: [Server; 4],
    attempts: [Attempt; ATTEMPTS],
    step: usize,
    waits_for: u8,
    floor: u8,
    won: u16,
    new_server_decided: bool,
    broken: Option<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Begin {
        new_view: bool,
    },
    Grant {
        attempt: usize,
        name: usize,
        replies: bool,
    },
    Confirm {
        attempt: usize,
        name: usize,
        replies: bool,
    },
    StartRenewal {
        attempt: usize,
    },
    Renew {
        attempt: usize,
        name: usize,
    },
    End {
        attempt: usize,
    },
    Expire {
        server: usize,
    },
    SealStep(Step),
}

#[derive(Clone, Copy, Debug)]
struct World(Register);

impl State {
    fn won(&mut self, id: usize, token: u8) {
        let others = (0..ATTEMPTS).filter(|other| *other != id);
        let held = |other: usize| matches!(self.attempts[other].phase, Phase::Held(_));
        self.broken = if others.clone().any(held) {
            Some(Broken::TwoHolders)
        } else if self.won & 1 << token != 0 {
            Some(Broken::TokenTwice)
        } else if token <= self.attempts[id].after {
            Some(Broken::TokenWentBack)
        } else {
            None
        };
        self.won |= 1 << token;
        let attempt = &mut self.attempts[id];
        self.new_server_decided |= attempt.new_view && attempt.numbers[0] > 0;
        *attempt = Attempt {
            phase: Phase::Held(token),
            new_view: attempt.new_view,
            knows_new_member: attempt.knows_new_member,
            ..Attempt::default()
        };
    }

    fn grant(&mut self, id: usize, name: usize, replies: bool) {
        let server = &mut self.servers[self.attempts[id].server(name)];
        server.counter += 1;
        server.lease = Some((id as u8, server.counter));
        let server = *server;
        let attempt = &mut self.attempts[id];
        attempt.asked |= 1 << name;
        if !replies {
            return;
        }
        attempt.numbers[name] = server.counter;
        attempt.knows_new_member |= server.knows_new_member;
        let granted: Vec<u8> = attempt.granted().collect();
        let token = granted.iter().copied().max().unwrap_or_default();
        if granted.len() < MAJORITY as usize {
            return;
        }
        if granted.iter().filter(|number| **number == token).count() >= MAJORITY as usize {
            self.won(id, token);
        } else {
            attempt.phase = Phase::Confirming(token);
            attempt.asked = 0;
        }
    }

    fn confirm(&mut self, id: usize, name: usize, token: u8, replies: bool) {
        let attempt = &mut self.attempts[id];
        let server = &mut self.servers[attempt.server(name)];
        server.counter = server.counter.max(token);
        attempt.asked |= 1 << name;
        if !replies {
            return;
        }
        attempt.acks |= 1 << name;
        attempt.knows_new_member |= server.knows_new_member;
        if attempt.counted(attempt.acks) >= MAJORITY {
            self.won(id, token);
        }
    }

    fn renew(&mut self, id: usize, name: usize, token: u8) {
        let attempt = &mut self.attempts[id];
        let server = &mut self.servers[attempt.server(name)];
        server.counter = server.counter.max(token);
        server.lease = server.lease.or(Some((id as u8, token)));
        attempt.acks |= 1 << name;
        attempt.knows_new_member |= server.knows_new_member;
        if attempt.counted(attempt.acks) >= MAJORITY {
            (attempt.renewing, attempt.acks) = (false, 0);
            if attempt.clears_wait {
                self.waits_for &= !(1 << id);
            }
        }
    }

    fn active(&self) -> u8 {
        (0..ATTEMPTS)
            .filter(|id| self.attempts[*id].is_active())
            .fold(0, |mask, id| mask | 1 << id)
    }

    fn seal_step(&mut self, step: Step) {
        self.step += 1;
        match step {
            Step::Register(server) => self.servers[server].knows_new_member = true,
            Step::StartWait => self.waits_for = self.active(),
            Step::EndWait => {}
            Step::Read(server) => self.floor = self.floor.max(self.servers[server].counter),
            Step::Seal => {
                self.servers[1] = Server {
                    sealed: true,
                    counter: self.floor,
                    ..Server::default()
                };
            }
        }
    }
}

fn explored(register: Register) -> Option<Broken> {
    let began = Instant::now();
    let checker = World(register).checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(PROMISE) else {
        checker.assert_properties();
        println!("one name, two servers: {register:?}: {states} distinct states, 0 violations");
        return None;
    };
    let broken = path.last_state().broken?;
    let took = began.elapsed().as_secs_f64();
    let name = match register {
        Register::Absent => "TwoServersOfOneName",
        Register::AfterTheWait => "RegisterAfterTheWait",
        Register::BeforeTheWait => "Nothing",
    };
    println!("planted: {name}|model|{broken:?} after {states} states, {took:.1} s");
    println!("{:?}", path.into_actions());
    Some(broken)
}

#[test]
fn planted_two_servers_of_one_name_give_a_lock_twice() {
    assert_eq!(explored(Register::Absent), Some(Broken::TwoHolders));
}

/// The wait does not outlast a holder that got its grant from the former server before the register was written.
#[test]
fn planted_register_that_is_written_after_the_wait_does_not_help() {
    assert_eq!(explored(Register::AfterTheWait), Some(Broken::TwoHolders));
}

#[test]
fn register_that_is_written_before_the_wait_leaves_one_holder() {
    assert_eq!(explored(Register::BeforeTheWait), None);
}
