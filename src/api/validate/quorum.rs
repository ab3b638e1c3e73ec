//! The rules of a `RedisQuorum`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::name::{check_label, check_subdomain};
use super::problems::{FieldError, Problems, Quoted};
use crate::api::plan::{AuthKeys, MasterPlan, QuorumPlan};
use crate::api::reasons;
use crate::api::redis_quorum::{Master, RedisQuorum, RedisQuorumSpec, SecretRef, SharedLockNames};
use crate::lease::timing::{DEFAULT_COMMAND_TIMEOUT, DEFAULT_LONGEST_LEASE};
use crate::masters::{DEFAULT_KEY_PREFIX, MasterUrl, MasterUrlError, redact};

const KEY_PREFIX_LIMIT: usize = 64;
/// No longer prefix could begin a lock name.
const LOCK_NAME_LIMIT: usize = 512;
// The API server checks a rule for each text in a list, and computes the cost of the rules for the longest list.
const SHARED_LIMIT: usize = 64;
const NAMESPACE_LIMIT: usize = 256;
const SECRET_KEY_LIMIT: usize = 253;

/// Checks one quorum by itself.
pub fn validate_quorum(object: &RedisQuorum) -> Result<QuorumPlan, Vec<FieldError>> {
    let mut problems = Problems::default();
    let spec = &object.spec;

    let name = object.metadata.name.clone().unwrap_or_default();
    if let Some(problem) = check_subdomain("metadata.name", &name) {
        problems.add(problem);
    }
    let masters = masters(&mut problems, &spec.masters);
    let key_prefix = key_prefix(&mut problems, spec.key_prefix.as_deref());
    let command_timeout = spec.command_timeout_milliseconds.and_then(|value| {
        problems.bounded(
            "spec.commandTimeoutMilliseconds",
            value,
            10..=2_000,
            " milliseconds",
        )
    });
    let longest_lease = problems.seconds(
        "spec.maxLeaseDurationSeconds",
        spec.max_lease_duration_seconds,
        2..=86_400,
    );

    let auth_secret = spec.auth.as_ref().map(|auth| &auth.secret_ref);
    let tls_secret = spec.tls.as_ref().map(|tls| &tls.secret_ref);
    for (field, secret) in [
        ("spec.auth.secretRef", auth_secret),
        ("spec.tls.secretRef", tls_secret),
    ] {
        if let Some(secret) = secret {
            check_secret(&mut problems, field, secret);
        }
    }
    let auth_keys = auth_keys(&mut problems, spec);
    let needs_tls = masters.iter().any(|(_, tls)| *tls);
    if tls_secret.is_some() && !needs_tls && !masters.is_empty() {
        problems.add(FieldError::missing("spec.tls", reasons::TLS_UNUSED));
    }
    check_all_shared(&mut problems, &spec.shared_lock_names);

    problems.verdict(QuorumPlan {
        name,
        masters: masters.into_iter().map(|(plan, _)| plan).collect(),
        key_prefix,
        command_timeout: command_timeout.map_or(DEFAULT_COMMAND_TIMEOUT, Duration::from_millis),
        longest_lease: longest_lease.unwrap_or(DEFAULT_LONGEST_LEASE),
        first_start: spec.first_start,
        needs_credentials: auth_secret.is_some(),
        needs_tls,
        auth_secret: auth_secret.cloned(),
        auth_keys,
        tls_secret: tls_secret.cloned(),
        shared_lock_names: spec.shared_lock_names.clone(),
    })
}

fn check_all_shared(problems: &mut Problems, prefixes: &[SharedLockNames]) {
    if prefixes.len() > SHARED_LIMIT {
        let reason = format!("are too many prefixes: share at most {SHARED_LIMIT}");
        problems.add(FieldError::new("spec.sharedLockNames", prefixes.len(), reason));
    }
    for (index, shared) in prefixes.iter().enumerate() {
        check_shared(problems, index, shared);
    }
}

/// The masters that can be used, each with whether it is reached by TLS.
fn masters(problems: &mut Problems, given: &[Master]) -> Vec<(MasterPlan, bool)> {
    if ![1, 3, 5, 7].contains(&given.len()) {
        problems.add(FieldError::new("spec.masters", given.len(), reasons::QUORUM_SIZE));
    }
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut addresses: BTreeMap<String, &str> = BTreeMap::new();
    let mut plans = Vec::new();
    for (index, master) in given.iter().enumerate() {
        let field = format!("spec.masters[{index}]");
        let name_field = format!("{field}.name");
        if let Some(problem) = check_label(&name_field, &master.name) {
            problems.add(problem);
        } else if let Some(first) = names.insert(&master.name, index) {
            let reason =
                format!("is already the name of spec.masters[{first}]: give each master a unique name");
            problems.add(FieldError::new(name_field, Quoted(&master.name), reason));
        }
        check_failure_domain(problems, &field, master.failure_domain.as_deref());
        let url_field = format!("{field}.url");
        let Some(url) = master_url(problems, &url_field, &master.url) else {
            continue;
        };
        if let Some(first) = addresses.insert(url.address.clone(), &master.name) {
            let reason = format!(
                "is the same server as master {first} ({}): {}",
                url.address,
                reasons::SERVER_OF_ITS_OWN
            );
            problems.add(FieldError::new(url_field, &master.url, reason));
        }
        let plan = MasterPlan {
            name: master.name.clone(),
            url: master.url.clone(),
            address: url.address,
            failure_domain: master.failure_domain.clone(),
        };
        plans.push((plan, url.tls));
    }
    plans
}

fn check_failure_domain(problems: &mut Problems, master: &str, domain: Option<&str>) {
    let Some(domain) = domain.filter(|domain| !(1..=63).contains(&domain.chars().count())) else {
        return;
    };
    let field = format!("{master}.failureDomain");
    let reason = "is not a failure domain: use 1 to 63 characters, or remove the field";
    problems.add(FieldError::new(field, Quoted(domain), reason));
}

/// Returns the url. `None` comes with a problem.
fn master_url(problems: &mut Problems, field: &str, text: &str) -> Option<MasterUrl> {
    let reason = match MasterUrl::parse(text) {
        Ok(url) => return Some(url),
        Err(MasterUrlError::Credentials) => reasons::CREDENTIALS.to_owned(),
        Err(MasterUrlError::Shape(reason)) => reason,
    };
    problems.add(FieldError::new(field, redact(text), reason));
    None
}

/// The prefix goes into key patterns of ACLs, where `*`, `?` and `[` would mean something else.
///
/// # Errors
/// What a prefix may be.
pub fn check_key_prefix(prefix: &str) -> Result<(), &'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if prefix.is_empty() || prefix.len() > KEY_PREFIX_LIMIT || !prefix.chars().all(allowed) {
        return Err(reasons::KEY_PREFIX);
    }
    Ok(())
}

fn key_prefix(problems: &mut Problems, given: Option<&str>) -> String {
    let prefix = given.unwrap_or(DEFAULT_KEY_PREFIX);
    if let Err(reason) = check_key_prefix(prefix) {
        problems.add(FieldError::new("spec.keyPrefix", Quoted(prefix), reason));
    }
    prefix.to_owned()
}

fn check_secret(problems: &mut Problems, field: &str, secret: &SecretRef) {
    let name = check_subdomain(&format!("{field}.name"), &secret.name);
    let namespace = check_label(&format!("{field}.namespace"), &secret.namespace);
    problems.extend(name.into_iter().chain(namespace).collect());
}

fn auth_keys(problems: &mut Problems, spec: &RedisQuorumSpec) -> AuthKeys {
    let auth = spec.auth.as_ref();
    let password = auth.and_then(|auth| auth.password_key.as_deref());
    let username = auth.and_then(|auth| auth.username_key.as_deref());
    for (field, key) in [
        ("spec.auth.passwordKey", password),
        ("spec.auth.usernameKey", username),
    ] {
        let reason = match key {
            Some(key) if !is_secret_key(key) => reasons::SECRET_KEY,
            Some(key) if spec.masters.iter().any(|master| is_key_of(master, key)) => reasons::KEY_OF_A_MASTER,
            Some(_) | None => continue,
        };
        problems.add(FieldError::new(field, Quoted(key.unwrap_or_default()), reason));
    }
    AuthKeys {
        password: password.unwrap_or("password").to_owned(),
        username: username.unwrap_or("username").to_owned(),
        needs_username: username.is_some(),
    }
}

fn is_secret_key(key: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !key.is_empty() && key.len() <= SECRET_KEY_LIMIT && key.chars().all(allowed)
}

/// Reports whether a key of the Secret is for this master alone.
fn is_key_of(master: &Master, key: &str) -> bool {
    let rest = key.strip_prefix(&master.name);
    rest.is_some_and(|rest| [".password", ".username"].contains(&rest))
}

fn check_shared(problems: &mut Problems, index: usize, shared: &SharedLockNames) {
    let field = format!("spec.sharedLockNames[{index}]");
    let prefix = &shared.prefix;
    let length = prefix.chars().count();
    if !(2..=LOCK_NAME_LIMIT).contains(&length) || !prefix.ends_with('/') || prefix.starts_with('_') {
        problems.add(FieldError::new(
            format!("{field}.prefix"),
            Quoted(prefix),
            reasons::SHARED_PREFIX,
        ));
    }
    if !(1..=NAMESPACE_LIMIT).contains(&shared.namespaces.len()) {
        let reason = format!("is not a valid number of namespaces: list 1 to {NAMESPACE_LIMIT}");
        problems.add(FieldError::new(
            format!("{field}.namespaces"),
            shared.namespaces.len(),
            reason,
        ));
    }
    for (n, namespace) in shared.namespaces.iter().enumerate() {
        problems.extend(
            check_label(&format!("{field}.namespaces[{n}]"), namespace)
                .into_iter()
                .collect(),
        );
    }
}

#[cfg(test)]
mod tests;
