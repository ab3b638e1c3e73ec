//! Classifies the reasons why a master's vote is unknown. No error is ever a refusal or a grant.

use thiserror::Error;

/// The codes of servers that answer and refuse writes.
const WRITE_REFUSALS: [&str; 4] = ["MISCONF", "NOREPLICAS", "OOM", "READONLY"];

/// The reason why no answer counts, neither as a grant nor as a refusal (P-4).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Unknown {
    #[error("not connected: {0}")]
    NotConnected(String),
    #[error("no answer within {0} ms")]
    TimedOut(u128),
    /// The master was not asked: it has not answered an earlier request yet.
    #[error("does not answer")]
    Silent,
    #[error("connection lost: {0}")]
    ConnectionLost(String),
    /// More requests are under way than a healthy master ever has.
    #[error("too many requests under way")]
    Congested,
    /// The facts are older than a few seconds.
    #[error("not polled for more than 3 s")]
    NotPolled,
    #[error("not sealed")]
    NotSealed,
    #[error("the id of the quorum is not known yet: no majority of the masters is sealed under one id")]
    QuorumUnknown,
    #[error("sealed for another quorum (fingerprint or quorum id)")]
    OtherFingerprint,
    /// The command reached the master after its `not_after`; it wrote nothing.
    #[error("arrived too late")]
    TooLate,
    /// The master is not eligible, for this reason.
    #[error("{0}")]
    Ineligible(String),
    /// The reply shows that the local clock stepped between the request and the reply.
    #[error("the clock of this machine stepped")]
    LocalClock,
    /// An error of the server, by its code: LOADING, READONLY, OOM, BUSY, MISCONF, NOAUTH, NOPERM, MOVED, …
    #[error("server error {code}: {detail}")]
    Server { code: String, detail: String },
    #[error("the reply cannot be read: {0}")]
    Reply(String),
}

/// Returns the first characters of a text that a server sent. Control characters, and all others outside of ASCII, are escaped:
/// some of them are invisible, or change the order in which a terminal shows the text.
#[must_use]
pub fn shown(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for character in text.chars().take(most) {
        if character.is_control() || !character.is_ascii() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

impl Unknown {
    /// Returns an error that the server gave.
    #[must_use]
    pub fn server(code: &str, detail: &str) -> Self {
        // The wording of Redis 7, and of Redis 8 and Valkey, for a command that is not permitted inside a
        // script.
        const IN_SCRIPT: [&str; 2] = ["user executing the script can't", "ACL failure in script"];
        let by_script = code == "ERR";
        let forbidden = by_script && IN_SCRIPT.iter().any(|text| detail.contains(text));
        // Redis 6.2 wraps the error of a command inside a script: `Error running script …: -OOM command not allowed …`.
        let mut refusals = WRITE_REFUSALS.into_iter().filter(|_| by_script);
        let refusal = refusals.find(|refusal| detail.contains(&format!("-{refusal} ")));
        Self::Server {
            code: match (forbidden, refusal) {
                (true, _) => "NOPERM".into(),
                (false, Some(refusal)) => refusal.into(),
                (false, None) => shown(code, 40),
            },
            detail: shown(detail, 200),
        }
    }

    /// Reports whether the server refused the credentials or their permissions.
    #[must_use]
    pub fn is_auth(&self) -> bool {
        matches!(self, Self::Server { code, .. } if ["NOAUTH", "NOPERM", "WRONGPASS"].contains(&code.as_str()))
    }

    /// Reports whether the server knows the user, and refused a permission.
    #[must_use]
    pub fn is_no_permission(&self) -> bool {
        matches!(self, Self::Server { code, .. } if code == "NOPERM")
    }

    /// Reports whether the server refused to write, although it answers: its disk or memory is full, it misses replicas, or it
    /// is a replica. The next write is refused, too, until a person or the server changes that.
    #[must_use]
    pub fn is_refused_write(&self) -> bool {
        matches!(self, Self::Server { code, .. } if WRITE_REFUSALS.contains(&code.as_str()))
    }

    /// Reports whether the command or its answer took too long, which does not predict the next one.
    #[must_use]
    pub const fn is_late(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::TooLate)
    }

    #[must_use]
    pub fn is_of_server(&self) -> bool {
        matches!(self, Self::Server { .. })
    }

    /// Reports whether a server in cluster mode does not serve the keys.
    #[must_use]
    pub fn is_of_a_cluster(&self) -> bool {
        const CODES: [&str; 5] = ["CLUSTERDOWN", "CROSSSLOT", "MOVED", "ASK", "TRYAGAIN"];
        matches!(self, Self::Server { code, .. } if CODES.contains(&code.as_str()))
    }

    /// Reports whether a program other than Redis may have given this answer: an error without a code of its
    /// own, or a reply of another form.
    #[must_use]
    pub fn may_be_of_another_program(&self) -> bool {
        matches!(self, Self::Reply(_)) || matches!(self, Self::Server { code, .. } if code == "ERR")
    }

    #[must_use]
    pub fn is_no_script(&self) -> bool {
        matches!(self, Self::Server { code, .. } if code == "NOSCRIPT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_server_is_bounded_and_has_no_control_character() {
        let unknown = Unknown::server(
            &"X".repeat(1_000_000),
            &format!("\u{1b}[2J\rü{}", "y".repeat(1_000)),
        );
        let Unknown::Server { code, detail } = unknown else {
            panic!("{unknown}");
        };
        assert_eq!(code, "X".repeat(40));
        assert_eq!(detail, format!("\\u{{1b}}[2J\\r\\u{{fc}}{}", "y".repeat(194)));
    }

    #[test]
    fn permission_that_a_script_lacks_is_known_by_the_words_of_every_server() {
        for detail in [
            "The user executing the script can't run this command or subcommand script: 5c, on @user_script:42.",
            "ACL failure in script: User app has no permissions to run the 'info' command script: 40, on @user_script:12.",
            "ACL failure in script: No permissions to access a channel script: 5c, on @user_script:42.",
        ] {
            let unknown = Unknown::server("ERR", detail);
            assert!(unknown.is_no_permission() && unknown.is_auth(), "{unknown}");
            assert!(!unknown.may_be_of_another_program(), "{unknown}");
        }
        let wrapped = "Error running script (call to f_cf04): @user_script:29: @user_script: 29: -OOM command not allowed \
                       when used memory > 'maxmemory'.";
        for refused in [
            Unknown::server("ERR", wrapped),
            Unknown::server("OOM", "command not allowed"),
        ] {
            assert!(
                refused.is_refused_write() && !refused.may_be_of_another_program(),
                "{refused}"
            );
        }
        let other = Unknown::server("ERR", "unknown command 'EVALSHA'");
        assert!(!other.is_no_permission() && other.may_be_of_another_program());
        assert!(!Unknown::server("LOADING", "").may_be_of_another_program());
    }
}
