//! Extracts the credentials and certificates for the masters from the Secrets that a quorum names. Reads no Secret
//! itself.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{
    api::{plan::QuorumPlan, redis_quorum::SecretRef},
    masters::{Credentials, Secret, Tls},
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
        key: &'static str,
    },
    #[error("{field}: key {key:?} of Secret {secret} is not text")]
    NoText {
        field: &'static str,
        secret: String,
        key: &'static str,
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

/// Returns the user and the password, from the Secret of `spec.auth`.
pub(crate) fn credentials(plan: &QuorumPlan, data: Option<&Data>) -> Result<Credentials, SecretError> {
    let Some(secret) = Contents::of(AUTH, plan.auth_secret.as_ref(), data) else {
        return Ok(Credentials::default());
    };
    let password = secret.text("password")?.ok_or_else(|| secret.lacks("password"))?;
    Ok(Credentials {
        username: secret.text("username")?,
        password: Some(Secret::new(password)),
    })
}

/// Returns the certificates, from the Secret of `spec.tls`.
pub(crate) fn certificates(plan: &QuorumPlan, data: Option<&Data>) -> Result<Tls, SecretError> {
    let Some(secret) = Contents::of(TLS, plan.tls_secret.as_ref(), data) else {
        return Ok(Tls::default());
    };
    let pem = |key| Ok(secret.text(key)?.map(Secret::new));
    let client = match (pem("tls.crt")?, pem("tls.key")?) {
        (Some(certificate), Some(private)) => Some((certificate, private)),
        (None, None) => None,
        (Some(_), None) => return Err(secret.lacks("tls.key")),
        (None, Some(_)) => return Err(secret.lacks("tls.crt")),
    };
    Ok(Tls {
        ca: pem("ca.crt")?,
        client,
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

    /// Returns one value, without the line break that `kubectl create secret --from-file` keeps.
    fn text(&self, key: &'static str) -> Result<Option<String>, SecretError> {
        let Some(bytes) = self.data.get(key) else {
            return Ok(None);
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned())),
            Err(_) => Err(SecretError::NoText {
                field: self.field,
                secret: self.secret(),
                key,
            }),
        }
    }

    fn lacks(&self, key: &'static str) -> SecretError {
        SecretError::KeyMissing {
            field: self.field,
            secret: self.secret(),
            key,
        }
    }
}
