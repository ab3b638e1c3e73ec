//! The protocol of the masters, exhaustively within small bounds: every order of commands, losses, expiries, wipes and
//! re-seals. What the simulation samples, this exhausts; it knows no time, only what may come before what.
//!
//! Three masters, two clients. A lease may run out at any moment, a command may be carried out late or never, its reply
//! may be lost, a master may lose its memory at any moment. The only clock is the wait of a re-seal, and it is an order:
//! what began before the probe is over when the wait is.
//!
//! What is left out, and why nothing is lost by it:
//! - *Delays of replies.* A reply that comes late does what one does that comes at once, only later: nobody waits for less.
//! - *Leases that nobody confirms any more.* They refuse grants; a grant that is refused changes nothing, and a lease may
//!   run out at any moment. So these are gone at once. A release, an undo and a reservation are the same.
//! - *Refused commands.* They are as good as never carried out.
//! - *Which is which.* Masters, attempts and clients are alike; states that differ in their order only are one.
//! - *Tokens and slots together.* Their registers know nothing of each other: each is explored on its own.
//!
//! What is assumed: when a majority has lost its memory at once, the clock of whoever re-seals is beyond every counter and
//! every slot that is due. Nothing is assumed of clocks otherwise.
#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation
)]

mod attempt;
mod exhaust;
mod master;
mod names;
mod planted;
mod state;
mod symmetry;
mod world;
