//! The rules of a `RedisQuorum`.

use kube::core::Rule;

use super::rule;
use crate::api::reasons;

/// 1 to 65535, without zeros in front.
const PORT: &str = "6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}";

pub(in crate::api) fn quorum_size() -> Rule {
    rule(
        "masters",
        "self.masters.size() in [1, 3, 5, 7]",
        reasons::QUORUM_SIZE,
    )
}

/// Compares the texts; that two of them mean one server is seen by the pure rules.
pub(in crate::api) fn servers_of_their_own() -> Rule {
    rule(
        "masters",
        "self.masters.all(m, self.masters.exists_one(n, n.url == m.url))",
        format!("contain one url twice: {}", reasons::SERVER_OF_ITS_OWN).as_str(),
    )
}

pub(in crate::api) fn masters_stay() -> Rule {
    rule(
        "masters",
        "self.masters.size() == oldSelf.masters.size() && self.masters.all(m, oldSelf.masters.exists(o, o.name == \
         m.name))",
        reasons::MASTERS_CHANGED,
    )
}

/// The url names a scheme that is spoken.
pub(in crate::api) fn url_scheme() -> Rule {
    rule(
        "url",
        "self.url.matches('^(?i:rediss?)://')",
        format!(
            "does not begin with redis:// or rediss://: {}",
            reasons::URL_SHAPE
        )
        .as_str(),
    )
}

/// A rule of its own, and of the master: the message of a pattern would repeat the password.
pub(in crate::api) fn url_without_credentials() -> Rule {
    rule("url", "!self.url.contains('@')", reasons::CREDENTIALS)
}

/// Checks the part after the scheme, unless another rule refuses the url.
pub(in crate::api) fn url_shape() -> Rule {
    let host = r"(\\[[0-9A-Fa-f:.]+\\]|[0-9A-Za-z._-]+)";
    rule(
        "url",
        format!(
            "self.url.contains('@') || !self.url.matches('^(?i:rediss?)://') || \
             (self.url.matches('^[^/]*//{host}(:({PORT}))?(/[0-9]{{0,9}})?$') && (!self.url.contains('[') || isIP(self.url.substring(self.url.indexOf('[') + 1, self.url.indexOf(']')))))"
        ),
        format!(
            "is not the url of a master, with a port from 1 to 65535 and the number of a database, if any: {}",
            reasons::URL_SHAPE
        )
        .as_str(),
    )
}

pub(in crate::api) fn key_prefix_characters() -> Rule {
    rule(
        "keyPrefix",
        "!has(self.keyPrefix) || self.keyPrefix.matches('^[-0-9A-Za-z_./]+$')",
        reasons::KEY_PREFIX,
    )
}

/// The default may be written down or left out.
pub(in crate::api) fn key_prefix_stays() -> Rule {
    rule(
        "keyPrefix",
        "(has(self.keyPrefix) ? self.keyPrefix : 'redlock') == (has(oldSelf.keyPrefix) ? oldSelf.keyPrefix : \
         'redlock')",
        reasons::KEY_PREFIX_CHANGED,
    )
}

/// The default may be written down or left out.
pub(in crate::api) fn longest_lease_stays() -> Rule {
    let field = "maxLeaseDurationSeconds";
    rule(
        field,
        format!("(has(self.{field}) ? self.{field} : 60) == (has(oldSelf.{field}) ? oldSelf.{field} : 60)"),
        reasons::LONGEST_LEASE_CHANGED,
    )
}

pub(in crate::api) fn tls_of_use() -> Rule {
    rule(
        "tls",
        "!has(self.tls) || self.masters.exists(m, m.url.matches('^(?i:rediss)://'))",
        reasons::TLS_UNUSED,
    )
}

/// Requires that `field`, if given, is a key that a Secret may have.
pub(in crate::api) fn secret_key(field: &str) -> Rule {
    rule(
        field,
        format!("!has(self.{field}) || self.{field}.matches('^[-._0-9A-Za-z]+$')"),
        reasons::SECRET_KEY,
    )
}

/// Requires that a key for all masters is not that of one master, whose password would reach the others.
pub(in crate::api) fn key_of_all_masters(field: &str) -> Rule {
    rule(
        &format!("auth.{field}"),
        format!(
            "!has(self.auth) || !has(self.auth.{field}) || !self.masters.exists(m, self.auth.{field} in [m.name + '.password', \
             m.name + '.username'])"
        ),
        reasons::KEY_OF_A_MASTER,
    )
}

/// Rule of an entry of `sharedLockNames`.
pub(in crate::api) fn shared_prefix() -> Rule {
    rule(
        "prefix",
        "self.prefix.endsWith('/') && !self.prefix.startsWith('_')",
        reasons::SHARED_PREFIX,
    )
}
