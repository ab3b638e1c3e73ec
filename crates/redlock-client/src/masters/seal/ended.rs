//! Removes the registers that locks leave after a clean end: those of deleted locks would add up, and each seal restores them.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use redlock_core::{
    Admission, LockKeys, LockName, Unknown,
    reply::Value,
    script::FORGET,
    seal::{Account, EndedRegister, Registers, ended_registers},
};
use thiserror::Error;
use tokio::time;

use crate::masters::{Masters, link::Link};

/// The number of locks in one call, and the pause between calls: requests of leases come first.
const CHUNK: usize = 64;
const PAUSE: Duration = Duration::from_millis(20);

/// The reason why no registers were removed. The next call tries again.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotForgotten {
    #[error("master {master} did not return its registers: {reason}")]
    Unread { master: String, reason: Unknown },
    #[error("master {master} has no vote: the registers of all masters are needed")]
    Unsealed { master: String },
    #[error("register {register} of master {master} is not plausible")]
    Implausible { master: String, register: String },
    #[error("master {master} did not confirm the removal: {reason}")]
    Unconfirmed { master: String, reason: Unknown },
}

impl Masters {
    /// Removes the registers of locks that ended cleanly and are not leased. Returns the number of registers that were removed.
    /// A lock that is used again counts as one that was never held.
    ///
    /// # Errors
    /// Returns a [`NotForgotten`] unless all masters vote and answer. Some registers may have been removed.
    pub async fn forget_ended(&self) -> Result<usize, NotForgotten> {
        let registers = self.registers_of_all().await?;
        let ended = ended_registers(&registers, self.size().majority());
        let named = ended.into_iter().filter_map(|register| {
            let name = LockName::any(&register.lock).ok()?;
            Some((self.lock(&name), register))
        });
        let ended: Vec<(Arc<LockKeys>, EndedRegister)> = named.collect();
        let mut removed = 0;
        for chunk in ended.chunks(CHUNK) {
            let calls = self.links().iter().map(|link| forget(link, chunk));
            for (link, result) in self.links().iter().zip(join_all(calls).await) {
                removed += result.map_err(|reason| NotForgotten::Unconfirmed {
                    master: link.name.clone(),
                    reason,
                })?;
            }
            time::sleep(PAUSE).await;
        }
        Ok(removed)
    }

    /// Returns the registers of all masters, each of which has its vote (P-121).
    async fn registers_of_all(&self) -> Result<Vec<Registers>, NotForgotten> {
        let accounts = self.read_accounts().await;
        let fingerprint = self.fingerprint().to_string();
        let quorum = self.quorum_id();
        let bounds = self.shared().read(|engine, _| engine.register_limits());
        let checked = |(link, account): (&Arc<Link>, Result<Account, Unknown>)| {
            let master = link.name.clone();
            let account = match account {
                Ok(account) => account,
                Err(reason) => return Err(NotForgotten::Unread { master, reason }),
            };
            let sealed = quorum
                .as_ref()
                .is_some_and(|quorum| account.sealed(&fingerprint, quorum));
            let Some(bounds) = bounds.filter(|_| sealed) else {
                return Err(NotForgotten::Unsealed { master });
            };
            match account.registers.implausible(&bounds) {
                None => Ok(account.registers),
                Some((register, _)) => Err(NotForgotten::Implausible {
                    master,
                    register: register.chars().take(120).collect(),
                }),
            }
        };
        self.links().iter().zip(accounts).map(checked).collect()
    }
}

async fn forget(link: &Link, ended: &[(Arc<LockKeys>, EndedRegister)]) -> Result<usize, Unknown> {
    let stamp = link.quorum.read(|engine, _| engine.stamp());
    let fill = |command: &mut redis::Cmd, not_after: u64| {
        command.arg(1 + 2 * ended.len()).arg(&*link.keys.meta);
        for (keys, _) in ended {
            command.arg(&keys.lease).arg(&keys.reserved);
        }
        command.arg(not_after).arg(&*stamp);
        for (_, register) in ended {
            command
                .arg(&register.lock)
                .arg(register.token)
                .arg(register.kind.name());
        }
    };
    let exchange = link.call(&FORGET, Admission::Voting, link.command_timeout(), fill);
    let reply = exchange.await.reply?;
    let removed = reply.items.iter().map(|item| match item {
        Value::Int(count) => usize::try_from(*count).unwrap_or_default().min(2),
        Value::Nil | Value::Text(_) | Value::Array(_) => 0,
    });
    Ok(removed.sum())
}
