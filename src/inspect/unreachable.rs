//! Masters that cannot be reached from the user's machine. They often run inside a cluster.

use super::{Reach, Session};
use crate::masters::MasterStatus;

/// No majority can be read from here.
#[derive(Clone, Debug)]
pub struct Unreachable {
    pub reach: Reach,
    /// The reason and the remedy, on one line.
    pub text: String,
}

impl Session {
    /// Returns the reason why the leases on the masters of this RedisQuorum are unknown, if they are. `command` is the
    /// command to run where the masters can be reached.
    #[must_use]
    pub fn unreachable(&self, quorum: &str, command: &str) -> Option<Unreachable> {
        let reach = self.reach();
        if reach == Reach::Majority {
            return None;
        }
        let all = self.masters.status();
        let silent = all.iter().filter(|master| !master.answers());
        let found: Vec<String> = silent.map(account).collect();
        let mut text = format!(
            "no majority of the masters of RedisQuorum {quorum} answers: {}",
            found.join("; ")
        );
        // A master that answers, even if it refuses the password, shows that the masters can be reached.
        if reach == Reach::TooFew && !all.iter().any(|master| master.connected) {
            text += &format!(
                "; if they are reached from inside of the cluster only, run the command in a pod of the operator: \
                 kubectl exec --namespace NAMESPACE deploy/redlock-operator -- {command}"
            );
        }
        Some(Unreachable { reach, text })
    }
}

fn account(master: &MasterStatus) -> String {
    let why = master
        .trouble
        .as_ref()
        .map_or_else(|| "no answer".to_owned(), ToString::to_string);
    format!("{} ({}): {why}", master.name, master.url)
}
