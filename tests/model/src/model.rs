//! The protocol of the masters, exhaustively within small bounds: every order of commands, losses, expiries,
//! wipes and re-seals. The simulation samples these orders, and the model explores all of them. It has no
//! time, only an order of events.
//!
//! Three masters, or one, and two clients. A lease may run out at any moment, a command may be executed late or never,
//! its reply may be lost, and a master may lose its memory at any moment. The only clock is the wait of a
//! re-seal, and this wait is an order: an attempt that began before the probe is over when the wait is.
//!
//! Omitted, and the reason why nothing is lost:
//! - *Delays of replies.* A late reply has the effect of an immediate one, only later: no client waits for less.
//! - *Leases that no client confirms any longer.* They refuse grants; a grant that is refused changes nothing, and a lease may
//!   run out at any moment. So the model removes them at once. A release, an undo and a reservation are the same.
//! - *Refused commands.* They are equivalent to commands that are never carried out.
//! - *Which is which.* Masters, attempts and clients are alike; states that differ in their order only are one.
//! - *Tokens and slots together.* Their registers are independent: each is explored on its own.
//!
//! Assumed: when a majority has lost its memory at once, the clock of the client that re-seals is beyond every counter and
//! every slot that is due. The model assumes nothing else about clocks.
#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation
)]

mod attempt;
mod exhaust;
mod fence;
mod master;
mod names;
mod planted;
mod sealers;
mod state;
mod symmetry;
mod world;
