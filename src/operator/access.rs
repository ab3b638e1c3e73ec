//! Extracts the credentials and certificates for the masters from the Secrets that a quorum names. Reads no Secret
//! itself.

use std::collections::BTreeMap;

use thiserror::Error;

use super::given::given;
use crate::{
    api::{plan::QuorumPlan, redis_quorum::SecretRef},
    masters::{Credentials, MasterLogin, Secret, Tls},
};

/// The content of a Secret.
pub(crate) type Data = BTreeMap<String, Vec<u8>>;

const AUTH: &str = "spec.auth.secretRef";
const TLS: &str = "spec.tls.secretRef";

/// The credentials and certificates for the masters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) credentials: Credentials,
    pub(crate) tls: Tls,
}

/// The reason why an existing Secret cannot be used. Contains no part of its content.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    #[error("{field}: Secret {secret} has no key {key:?}")]
    KeyMissing {
        field: &'static str,
        secret: String,
        key: String,
    },
    #[error("{field}: key {key:?} of Secret {secret} is empty")]
    KeyEmpty {
        field: &'static str,
        secret: String,
        key: String,
    },
    #[error("{field}: key {key:?} of Secret {secret} is not text in UTF-8")]
    NoText {
        field: &'static str,
        secret: String,
        key: String,
    },
}

impl Access {
    /// Creates the access from the contents of the Secrets: `None` for a Secret that the plan does not name.
    pub(crate) fn of(
        plan: &QuorumPlan,
        auth: Option<&Data>,
        tls: Option<&Data>,
    ) -> Result<Self, SecretError> {
        Ok(Self {
            credentials: credentials(plan, auth)?,
            tls: certificates(plan, tls)?,
        })
    }
}

/// Returns the user and the password, from the Secret of `spec.auth`. The keys `MASTER.username` and `MASTER.password` are for
/// the master of this name alone.
pub(crate) fn credentials(plan: &QuorumPlan, data: Option<&Data>) -> Result<Credentials, SecretError> {
    let Some(secret) = Contents::of(AUTH, plan.auth_secret.as_ref(), data) else {
        return Ok(Credentials::default());
    };
    let mut own = BTreeMap::new();
    for name in plan.masters.iter().map(|master| &master.name) {
        if let Some(password) = secret.text(&format!("{name}.password"))? {
            let username = secret.text(&format!("{name}.username"))?;
            let password = Secret::new(password);
            own.insert(name.clone(), MasterLogin { username, password });
        }
    }
    let keys = &plan.auth_keys;
    let password = secret.text(&keys.password)?;
    // Without a password, the client would send no user, and the server would use its default user.
    if password.is_none() && own.len() < plan.masters.len() {
        return Err(secret.lacks(&keys.password));
    }
    // A misspelt key would stand for the default user.
    if keys.needs_username && !secret.data.contains_key(&keys.username) {
        return Err(secret.lacks(&keys.username));
    }
    Ok(Credentials {
        username: secret.text(&keys.username)?,
        password: password.map(Secret::new),
        own,
    })
}

/// Returns the certificates, from the Secret of `spec.tls`. The keys `MASTER.tls.crt` and `MASTER.tls.key` are for the master of
/// this name alone.
pub(crate) fn certificates(plan: &QuorumPlan, data: Option<&Data>) -> Result<Tls, SecretError> {
    let Some(secret) = Contents::of(TLS, plan.tls_secret.as_ref(), data) else {
        return Ok(Tls::default());
    };
    let mut own = BTreeMap::new();
    for name in plan.masters.iter().map(|master| &master.name) {
        if let Some(client) = secret.client(&format!("{name}.tls.crt"), &format!("{name}.tls.key"))? {
            own.insert(name.clone(), client);
        }
    }
    Ok(Tls {
        ca: secret.text("ca.crt")?.map(Secret::new),
        client: secret.client("tls.crt", "tls.key")?,
        own,
    })
}

/// The content of one Secret, and the field that names it.
struct Contents<'a> {
    field: &'static str,
    reference: &'a SecretRef,
    data: &'a Data,
}

impl<'a> Contents<'a> {
    fn of(
        field: &'static str,
        reference: Option<&'a SecretRef>,
        data: Option<&'a Data>,
    ) -> Option<Contents<'a>> {
        Some(Contents {
            field,
            reference: reference?,
            data: data?,
        })
    }

    fn secret(&self) -> String {
        format!("{}/{}", self.reference.namespace, self.reference.name)
    }

    /// Returns one value. `kubectl create secret --from-file` keeps a line break at its end.
    fn text(&self, key: &str) -> Result<Option<String>, SecretError> {
        let Some(bytes) = self.data.get(key) else {
            return Ok(None);
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(given(text).map(str::to_owned)),
            Err(_) => Err(SecretError::NoText {
                field: self.field,
                secret: self.secret(),
                key: key.to_owned(),
            }),
        }
    }

    /// Returns a certificate and its key, of which neither is used alone.
    fn client(&self, certificate: &str, key: &str) -> Result<Option<(Secret, Secret)>, SecretError> {
        let pem = |key| Ok(self.text(key)?.map(Secret::new));
        match (pem(certificate)?, pem(key)?) {
            (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(self.lacks(key)),
            (None, Some(_)) => Err(self.lacks(certificate)),
        }
    }

    /// Returns the error of a key that is missing, or whose value counts as missing.
    fn lacks(&self, key: &str) -> SecretError {
        let (field, secret, key) = (self.field, self.secret(), key.to_owned());
        if self.data.contains_key(&key) {
            SecretError::KeyEmpty { field, secret, key }
        } else {
            SecretError::KeyMissing { field, secret, key }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::validate::validate_quorum;

    fn plan() -> QuorumPlan {
        plan_with("")
    }

    /// Returns a plan with further fields of `auth`.
    fn plan_with(auth: &str) -> QuorumPlan {
        let object = "{apiVersion: redlock.dev/v1alpha1, kind: RedisQuorum, metadata: {name: q}, spec: {auth: {AUTH secretRef: {name: \
                      s, namespace: n}}, tls: {secretRef: {name: t, namespace: n}}, masters: [{name: a, url: 'rediss://a'}, \
                      {name: b, url: 'rediss://b'}, {name: c, url: 'rediss://c'}]}}";
        validate_quorum(&serde_yaml::from_str(&object.replace("AUTH", auth)).unwrap()).unwrap()
    }

    fn data(keys: &[&str]) -> Data {
        let value = |key: &&str| ((*key).to_owned(), format!("of {key}\n").into_bytes());
        keys.iter().map(value).collect()
    }

    fn login(credentials: &Credentials, master: &str) -> (Option<String>, Option<Secret>) {
        let (username, password) = credentials.login(master);
        (username.map(str::to_owned), password.cloned())
    }

    #[test]
    fn password_of_one_master_is_for_that_master_alone() {
        let given = data(&[
            "username",
            "password",
            "b.password",
            "c.username",
            "c.password",
            "z.password",
        ]);
        let credentials = credentials(&plan(), Some(&given)).unwrap();
        let of = |user: &str, key: &str| {
            let password = Secret::new(format!("of {key}"));
            (Some(format!("of {user}")), Some(password))
        };
        assert_eq!(login(&credentials, "a"), of("username", "password"));
        assert_eq!(login(&credentials, "b"), of("username", "b.password"));
        assert_eq!(login(&credentials, "c"), of("c.username", "c.password"));
        assert_eq!(credentials.own.len(), 2, "no master has the name z");
    }

    #[test]
    fn every_master_has_a_password() {
        let of_all = data(&["a.password", "b.password", "c.password"]);
        assert_eq!(credentials(&plan(), Some(&of_all)).unwrap().password, None);
        let error = credentials(&plan(), Some(&data(&["a.password", "b.password"]))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.auth.secretRef: Secret n/s has no key \"password\""
        );
    }

    #[test]
    fn white_space_and_byte_order_marks_are_no_part_of_a_value() {
        let given: Data = [
            ("username", "\u{feff}svc\r\n"),
            ("password", " p@:/#%$ s\n\n"),
            ("a.password", " \n"),
            ("b.username", ""),
            ("b.password", "\tof b"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
        .collect();
        let credentials = credentials(&plan(), Some(&given)).unwrap();
        let of = |password: &str| (Some("svc".to_owned()), Some(Secret::new(password.to_owned())));
        assert_eq!(
            login(&credentials, "a"),
            of("p@:/#%$ s"),
            "an empty key is absent"
        );
        assert_eq!(login(&credentials, "b"), of("of b"));
    }

    #[test]
    fn values_of_no_characters_count_as_absent() {
        let empty = |key: &str| [(key.to_owned(), b"\n".to_vec())];
        let error = credentials(&plan(), Some(&empty("password").into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.auth.secretRef: key \"password\" of Secret n/s is empty"
        );
        // cert-manager writes an empty ca.crt where the issuer is a public authority.
        let tls = certificates(&plan(), Some(&empty("ca.crt").into())).unwrap();
        assert_eq!(tls.ca, None);
        let binary: Data = [(
            "password".to_owned(),
            "\u{feff}p".encode_utf16().flat_map(u16::to_le_bytes).collect(),
        )]
        .into();
        let error = credentials(&plan(), Some(&binary)).unwrap_err();
        assert!(error.to_string().contains("is not text in UTF-8"), "{error}");
    }

    #[test]
    fn keys_of_the_manifest_replace_the_usual_ones() {
        let plan = plan_with("passwordKey: redis-password, usernameKey: user,");
        let given = data(&["redis-password", "user", "password", "username"]);
        let found = credentials(&plan, Some(&given)).unwrap();
        let expected = (
            Some("of user".to_owned()),
            Some(Secret::new("of redis-password".into())),
        );
        assert_eq!(login(&found, "a"), expected);
        for missing in ["redis-password", "user"] {
            let mut given = given.clone();
            given.remove(missing);
            let error = credentials(&plan, Some(&given)).unwrap_err();
            let expected = format!("spec.auth.secretRef: Secret n/s has no key {missing:?}");
            assert_eq!(error.to_string(), expected);
        }
        let mut given = given;
        given.insert("user".to_owned(), b"\n".to_vec());
        let of_default = credentials(&plan, Some(&given)).unwrap();
        assert_eq!(of_default.username, None, "an empty user is the default user");
    }

    #[test]
    fn client_certificate_of_one_master_needs_its_key() {
        let given = data(&["ca.crt", "tls.crt", "tls.key", "b.tls.crt", "b.tls.key"]);
        let tls = certificates(&plan(), Some(&given)).unwrap();
        let common = (Secret::new("of tls.crt".into()), Secret::new("of tls.key".into()));
        let own = (
            Secret::new("of b.tls.crt".into()),
            Secret::new("of b.tls.key".into()),
        );
        assert_eq!(
            (tls.client_for("a"), tls.client_for("b")),
            (Some(&common), Some(&own))
        );
        let error = certificates(&plan(), Some(&data(&["c.tls.crt"]))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.tls.secretRef: Secret n/t has no key \"c.tls.key\""
        );
    }
}
