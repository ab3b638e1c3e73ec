//! Decides when a master without memory may vote again, and with which registers.
//!
//! Pure. The plan is made from one read of all masters; the registers merge number by number.

mod account;
mod ended;
mod known;
mod plan;
mod registers;
mod seen;

pub use account::{Account, AccountReader, AfterPage};
pub use ended::{EndedKind, EndedRegister, ended_registers};
pub use known::{Known, Remembered};
pub use plan::{Blocked, Plan, Quarantine, Read, Response, SealedBy, Step};
pub use registers::{Past, Registers, Slot};
pub use seen::{Knowledge, Seen, init_probe};
