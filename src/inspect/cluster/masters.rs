//! The masters of a RedisQuorum object: with the values of its Secrets, or with those of the command line.

use k8s_openapi::api::core::v1::Secret as Object;
use kube::{Api, ResourceExt};

use super::{Cluster, ClusterError, objects::plan};
use crate::{
    api::{RedisQuorum, plan::QuorumPlan, redis_quorum::SecretRef},
    inspect::Session,
    lease::ClusterId,
    masters::{Credentials, MastersConfig, QuorumId, Tls},
    operator::{
        access::{Access, Data, SecretError, certificates, credentials},
        masters_config,
    },
};

/// The values of the command line. A value that is given is used, and the Secret is not read.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub credentials: Credentials,
    pub tls: Tls,
    pub cluster: ClusterId,
}

impl Cluster {
    /// Returns the settings for the masters of a quorum.
    ///
    /// # Errors
    /// Returns an error if the object is invalid, or a Secret is missing, lacks a value or may not be read.
    pub async fn masters_config(
        &self,
        quorum: &RedisQuorum,
        given: &Given,
    ) -> Result<MastersConfig, ClusterError> {
        let plan = plan(quorum)?;
        let access = self.access(&plan, given).await?;
        let access = (access.credentials, access.tls);
        let status = quorum.status.as_ref();
        Ok(MastersConfig {
            quorum: status.and_then(|status| QuorumId::parse(status.quorum_id.as_deref()?)),
            ..masters_config(&plan, access, given.cluster.clone(), false)
        })
    }

    /// Connects to the masters of a quorum, as far as they can be reached from here.
    ///
    /// # Errors
    /// Returns an error as [`Self::masters_config`] does, and if a certificate is invalid.
    pub async fn session(&self, quorum: &RedisQuorum, given: &Given) -> Result<Session, ClusterError> {
        let config = self.masters_config(quorum, given).await?;
        self.session_of(quorum, config).await
    }

    /// Connects to the masters of a quorum with these settings.
    ///
    /// # Errors
    /// Returns an error if the masters do not agree on the quorum.
    pub async fn session_of(
        &self,
        quorum: &RedisQuorum,
        config: MastersConfig,
    ) -> Result<Session, ClusterError> {
        Session::open(config, None)
            .await
            .map_err(|source| ClusterError::Masters {
                quorum: quorum.name_any(),
                source,
            })
    }

    async fn access(&self, plan: &QuorumPlan, given: &Given) -> Result<Access, ClusterError> {
        let wrong = |error: SecretError| ClusterError::Secret {
            quorum: plan.name.clone(),
            error,
        };
        let own = &given.credentials;
        let credentials = match &plan.auth_secret {
            Some(secret) if own.username.is_none() && own.password.is_none() => {
                let instead = "--username and --password-file (or REDLOCK_PASSWORD) replace the Secret";
                let data = self.secret(plan, secret, instead).await?;
                credentials(plan, Some(&data)).map_err(wrong)?
            }
            _ => own.clone(),
        };
        let tls = match &plan.tls_secret {
            Some(secret) if given.tls.ca.is_none() && given.tls.client.is_none() => {
                let instead = "--tls-ca, --tls-cert and --tls-key replace the Secret";
                let data = self.secret(plan, secret, instead).await?;
                certificates(plan, Some(&data)).map_err(wrong)?
            }
            _ => given.tls.clone(),
        };
        Ok(Access { credentials, tls })
    }

    async fn secret(
        &self,
        plan: &QuorumPlan,
        reference: &SecretRef,
        instead: &str,
    ) -> Result<Data, ClusterError> {
        let SecretRef { name, namespace } = reference;
        let api: Api<Object> = Api::namespaced(self.client(), namespace);
        let object = format!("Secret {namespace}/{name}, which RedisQuorum {} names", plan.name);
        let doing = format!("get of {object}");
        let secret = api.get(name).await;
        let secret =
            secret.map_err(|error| ClusterError::asked(&doing, Some(&object), &error).or_else(instead))?;
        let data = secret.data.unwrap_or_default().into_iter();
        Ok(data.map(|(key, bytes)| (key, bytes.0)).collect())
    }
}
