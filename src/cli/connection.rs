//! The flags that name the masters and the identity for connections, the same for every command.

use std::path::PathBuf;

use clap::Args;

use super::{Exit, Failure};
use crate::{
    api::validate::check_key_prefix,
    lease::ClusterId,
    masters::{Credentials, MastersConfig, Secret, Tls},
    operator::masters_config,
    standalone::manifests::load_quorum,
};

/// The credentials and the cluster for connections to the masters.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// ACL user of the masters.
    #[arg(long, env = "REDLOCK_USERNAME")]
    pub username: Option<String>,
    /// File with the password of the masters; the variable REDLOCK_PASSWORD holds the password itself.
    #[arg(long, env = "REDLOCK_PASSWORD_FILE", value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// PEM file of the authority that signed the masters' certificates, for rediss:// urls.
    #[arg(long, env = "REDLOCK_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// PEM file of the client certificate.
    #[arg(long, env = "REDLOCK_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the client's key.
    #[arg(long, env = "REDLOCK_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Own cluster, NAME or NAME/UID.
    #[arg(long, env = "REDLOCK_CLUSTER", default_value = "local/local")]
    pub cluster: ClusterId,
}

/// The masters of one quorum.
#[derive(Args, Clone, Debug)]
pub struct QuorumArgs {
    /// Urls of all masters, separated by commas; they are called m0, m1, … Without --masters and --config, those of the
    /// variable REDLOCK_MASTERS.
    // Not by `env`: an exported variable, which the user did not type, would then conflict with --config.
    #[arg(long, value_name = "URL,…", value_delimiter = ',')]
    pub masters: Vec<String>,
    /// A RedisQuorum manifest instead of urls.
    #[arg(long, value_name = "FILE", conflicts_with = "masters")]
    pub config: Option<PathBuf>,
    /// Prefix of the keys on the masters; a RedisQuorum has its own.
    #[arg(
        long,
        env = "REDLOCK_KEY_PREFIX",
        value_name = "PREFIX",
        default_value = "redlock",
        value_parser = key_prefix,
        conflicts_with = "config"
    )]
    pub key_prefix: String,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

fn key_prefix(text: &str) -> Result<String, String> {
    check_key_prefix(text)
        .map(|()| text.to_owned())
        .map_err(|reason| format!("it {reason}"))
}

fn read(flag: &str, path: &PathBuf) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| {
        Failure::new(
            Exit::Config,
            format!("--{flag} {}: cannot be read: {e}", path.display()),
        )
    })
}

impl ConnectionArgs {
    /// Returns the name of the cluster, for a process that reads the UID from the API server.
    ///
    /// # Errors
    /// Returns an error if a UID is given.
    pub(super) fn name_of_the_cluster(&self) -> Result<String, Failure> {
        let cluster = &self.cluster;
        if cluster.uid() == cluster.name() {
            return Ok(cluster.name().to_owned());
        }
        let message = format!(
            "--cluster {cluster}: in a cluster the UID is that of its kube-system namespace; give --cluster {}",
            cluster.name()
        );
        Err(Failure::new(Exit::Config, message))
    }

    /// Reads the user, and the password from the file or the environment.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or a user is given without a password.
    pub fn credentials(&self) -> Result<Credentials, Failure> {
        let password = match &self.password_file {
            Some(path) => Some(
                read("password-file", path)?
                    .trim_end_matches(['\r', '\n'])
                    .to_owned(),
            ),
            None => std::env::var("REDLOCK_PASSWORD").ok().filter(|p| !p.is_empty()),
        };
        if let Some(username) = self.username.as_ref().filter(|_| password.is_none()) {
            // Without a password, the client would not send the user, and the server would use its default user.
            let message = format!(
                "--username {username}: no password is given: add --password-file (an empty file for a user without \
                 one) or REDLOCK_PASSWORD"
            );
            return Err(Failure::new(Exit::Config, message));
        }
        Ok(Credentials {
            username: self.username.clone(),
            password: password.map(Secret::new),
            ..Credentials::default()
        })
    }

    /// Reads the PEM files.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read.
    pub fn tls(&self) -> Result<Tls, Failure> {
        let file =
            |flag, path: &Option<PathBuf>| path.as_ref().map(|p| read(flag, p).map(Secret::new)).transpose();
        let client = file("tls-cert", &self.tls_cert)?.zip(file("tls-key", &self.tls_key)?);
        Ok(Tls {
            ca: file("tls-ca", &self.tls_ca)?,
            client,
            ..Tls::default()
        })
    }
}

impl QuorumArgs {
    /// Reports whether flags or REDLOCK_MASTERS name the masters.
    #[must_use]
    pub fn named(&self) -> bool {
        let exported = || std::env::var_os("REDLOCK_MASTERS").is_some_and(|urls| !urls.is_empty());
        !self.masters.is_empty() || self.config.is_some() || exported()
    }

    /// Returns the masters that the flags or the manifest name. With bare urls, the longest lease and T_acquire are the
    /// defaults until the stored fingerprint is adopted.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or a manifest is invalid.
    pub fn masters_config(&self) -> Result<MastersConfig, Failure> {
        self.named_masters_config().map(|(_, config)| config)
    }

    /// Returns the same masters, with the name of the quorum. Bare urls have no name.
    ///
    /// # Errors
    /// Returns an error as [`Self::masters_config`] does.
    pub(super) fn named_masters_config(&self) -> Result<(Option<String>, MastersConfig), Failure> {
        let (credentials, tls) = (self.connection.credentials()?, self.connection.tls()?);
        let cluster = self.connection.cluster.clone();
        if let Some(file) = &self.config {
            let plan = load_quorum(file).map_err(|e| Failure::caused(Exit::Config, &e))?;
            let config = masters_config(&plan, (credentials, tls), cluster, false);
            return Ok((Some(plan.name), config));
        }
        let exported = std::env::var("REDLOCK_MASTERS").unwrap_or_default();
        let given: Vec<&str> = match &self.masters[..] {
            [] if exported.is_empty() => {
                let needed =
                    "no masters given: give --masters URL,… or --config FILE, or set REDLOCK_MASTERS";
                return Err(Failure::new(Exit::Usage, needed));
            }
            [] => exported.split(',').collect(),
            flags => flags.iter().map(String::as_str).collect(),
        };
        let urls = given.into_iter().map(str::trim).filter(|url| !url.is_empty());
        let config = MastersConfig {
            key_prefix: self.key_prefix.clone(),
            credentials,
            tls,
            cluster,
            reseal: false,
            ..MastersConfig::new(urls)
        };
        Ok((None, config))
    }
}
