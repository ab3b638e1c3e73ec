//! The report on one master.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::masters::{MasterStatus, Registers, Server, Unknown};

/// The known facts about one master.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterReport {
    pub name: String,
    pub url: String,
    pub reachable: bool,
    /// Whether its votes count.
    pub votes: bool,
    pub sealed: bool,
    /// The id of the quorum for which the master was last sealed.
    pub quorum_id: Option<String>,
    /// The minimum time until a candidate can seal the master, while it is in quarantine.
    pub seal_seconds_left: Option<u64>,
    /// The reason why the master has no vote although it answers.
    pub refused: Option<String>,
    /// Whether user, password or permissions are the reason.
    #[serde(skip)]
    auth: bool,
    /// The reason why the master does not answer.
    pub trouble: Option<String>,
    pub role: Option<String>,
    /// The program, such as `Valkey`.
    pub server: Option<String>,
    /// The version of the program.
    pub version: Option<String>,
    /// `aof` or `none`.
    pub persistence: Option<&'static str>,
    pub eviction_policy: Option<String>,
    pub latency_milliseconds: Option<f64>,
    pub counter: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<BTreeMap<String, String>>,
}

impl MasterReport {
    pub(super) fn of(
        status: &MasterStatus,
        registers: Option<Result<Registers, Unknown>>,
        seal_wait: Duration,
        unix_now: Duration,
    ) -> Self {
        let facts = status.facts.as_ref().filter(|_| status.answers());
        let known = facts
            .map(|facts| &facts.server)
            .filter(|server| **server != Server::Unknown);
        // A program that is refused by name alone has reported nothing else.
        let reported = facts.filter(|facts| !facts.role.is_empty());
        let sealed = facts.is_some_and(|facts| facts.sealed());
        let probed = facts.and_then(|facts| facts.probed_for(unix_now));
        let left = probed.map(|since| seal_wait.saturating_sub(since).as_secs_f64().ceil());
        let registers = registers.map(|registers| match registers {
            Ok(registers) => written(&registers),
            Err(unknown) => BTreeMap::from([("error".to_owned(), unknown.to_string())]),
        });
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the wait"
        )]
        Self {
            name: status.name.clone(),
            url: status.url.clone(),
            reachable: facts.is_some(),
            votes: status.votes(),
            sealed,
            quorum_id: facts.and_then(|facts| Some(facts.quorum.as_ref()?.to_string())),
            seal_seconds_left: left.filter(|_| !sealed).map(|left| left as u64),
            refused: status
                .ineligible
                .as_ref()
                .filter(|_| facts.is_some())
                .map(ToString::to_string),
            auth: status.auth(),
            trouble: match (&status.trouble, facts) {
                (Some(trouble), _) => Some(trouble.to_string()),
                (None, None) => Some("no answer".into()),
                (None, Some(_)) => None,
            },
            role: reported.map(|facts| facts.role.clone()),
            server: known.map(|server| server.name().to_owned()),
            version: known.map(|server| server.version().to_owned()),
            persistence: reported.map(|facts| if facts.aof { "aof" } else { "none" }),
            eviction_policy: reported.map(|facts| facts.eviction_policy.clone()),
            latency_milliseconds: facts.map(|_| (status.latency.as_secs_f64() * 1e6).round() / 1e3),
            counter: facts.map(|facts| facts.counter),
            registers,
        }
    }

    /// Returns the name that users know: `Valkey 8.1.1`.
    pub(super) fn program(&self) -> Option<String> {
        let (server, version) = (self.server.as_ref()?, self.version.as_ref()?);
        Some(format!("{server} {version}"))
    }

    /// Returns the word for its vote: the reason why the master does not vote, or that it does.
    pub(super) fn standing(&self) -> String {
        match (&self.trouble, &self.refused, self.seal_seconds_left) {
            (Some(_), _, _) if self.auth => "no access".into(),
            (Some(_), _, _) => "unreachable".into(),
            (None, Some(_), _) => "refused".into(),
            (None, None, _) if self.sealed => "sealed".into(),
            (None, None, Some(0)) => "not sealed, due".into(),
            (None, None, Some(left)) => format!("sealing, {left} s left"),
            (None, None, None) => "not sealed".into(),
        }
    }
}

fn written(registers: &Registers) -> BTreeMap<String, String> {
    let numbers = registers
        .numbers
        .iter()
        .map(|(field, n)| (field.clone(), n.to_string()));
    let slots = registers.slots.iter();
    let slots = slots.map(|(field, slot)| (field.clone(), format!("{} by {}", slot.slot, slot.uid)));
    numbers.chain(slots).collect()
}
