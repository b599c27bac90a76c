//! What the node needs from others: images and networks. Traits, so that tests bring their own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ferrovirt_images::Credentials;
use futures::future::BoxFuture;

/// When an image is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// Each time.
    Always,
    /// When it is not in the store.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// A `.dockerconfigjson`, as image pull secrets contain it.
pub type PullSecret = Vec<u8>;

/// An unpacked image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// `sha256:…`
    pub digest: String,
    /// Its file tree, read-only and shared.
    pub root: PathBuf,
    /// Program.
    pub entrypoint: Vec<String>,
    /// Arguments.
    pub command: Vec<String>,
    /// `NAME=value`
    pub environment: Vec<String>,
    /// `user[:group]`, names or numbers; empty for root.
    pub user: String,
    /// Where it starts.
    pub working_directory: String,
    /// What asks it to end.
    pub stop_signal: Option<String>,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageProblem {
    /// The reference makes no sense.
    #[error("image reference {reference:?} is not valid: {reason}")]
    Reference {
        /// As written.
        reference: String,
        /// What is wrong.
        reason: String,
    },
    /// It is not in the store and may not be fetched.
    #[error("image {0} is not on this machine and its pull policy is Never")]
    NotPresent(String),
    /// It could not be fetched or unpacked.
    #[error("{0}")]
    Pull(String),
}

/// Where images come from.
pub trait ImageSource: Send + Sync {
    /// Finds or fetches an image, and keeps it until `holder` is released. `secrets` may have a login for the registry.
    fn resolve<'a>(
        &'a self,
        reference: &'a str,
        policy: PullPolicy,
        secrets: &'a [PullSecret],
        holder: &'a str,
    ) -> BoxFuture<'a, Result<Image, ImageProblem>>;
    /// The holder needs its images no more; one that has none is fine.
    fn release(&self, holder: &str) -> Result<(), String>;
    /// Everyone who holds an image.
    fn holders(&self) -> Result<Vec<String>, String>;
}

/// A pod's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNetwork {
    /// The network namespace.
    pub namespace: PathBuf,
    /// The pod's addresses; the first is `podIP`.
    pub addresses: Vec<IpAddr>,
    /// Name servers.
    pub dns_servers: Vec<IpAddr>,
    /// Search list.
    pub dns_searches: Vec<String>,
}

/// Where networks come from.
pub trait PodNetworks: Send + Sync {
    /// Makes the network of a pod, or finds the one it has.
    fn attach<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<PodNetwork, String>>;
    /// Takes it away; one that is not there is fine.
    fn detach<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), String>>;
    /// The uids of all pods that have one.
    fn attached(&self) -> Result<Vec<String>, String>;
    /// The addresses of all pods that have one, by uid.
    fn addresses(&self) -> Result<HashMap<String, Vec<IpAddr>>, String>;
    /// Lets packets from and to pods pass by these rules, the content of an nftables table, in place of earlier ones; all packets
    /// without rules. Rules hold until others come, also over restarts of this process and of the machine.
    fn restrict<'a>(&'a self, rules: Option<&'a str>) -> BoxFuture<'a, Result<(), String>>;
}

/// The whole chain of causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

impl PodNetworks for ferrovirt_cluster_network::Node {
    fn attach<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<PodNetwork, String>> {
        Box::pin(async move {
            let network = self.attach_pod(uid).await.map_err(|error| chain(&error))?;
            Ok(PodNetwork {
                namespace: network.netns,
                addresses: network.addresses.iter().map(|network| network.address).collect(),
                dns_servers: network.dns_servers,
                dns_searches: network.dns_searches,
            })
        })
    }

    fn detach<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move { self.detach_pod(uid).await.map_err(|error| chain(&error)) })
    }

    fn attached(&self) -> Result<Vec<String>, String> {
        let pods = self.pods().map_err(|error| chain(&error))?;
        Ok(pods.into_iter().map(|pod| pod.uid).collect())
    }

    fn addresses(&self) -> Result<HashMap<String, Vec<IpAddr>>, String> {
        let pods = self.pods().map_err(|error| chain(&error))?;
        Ok(pods.into_iter().map(|pod| (pod.uid, pod.addresses.to_vec())).collect())
    }

    fn restrict<'a>(&'a self, rules: Option<&'a str>) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move { self.set_policies(rules).await.map_err(|error| chain(&error)) })
    }
}

impl ImageSource for ferrovirt_images::Store {
    fn resolve<'a>(
        &'a self,
        reference: &'a str,
        policy: PullPolicy,
        secrets: &'a [PullSecret],
        holder: &'a str,
    ) -> BoxFuture<'a, Result<Image, ImageProblem>> {
        Box::pin(async move {
            let policy = match policy {
                PullPolicy::Always => ferrovirt_images::PullPolicy::Always,
                PullPolicy::IfNotPresent => ferrovirt_images::PullPolicy::IfNotPresent,
                PullPolicy::Never => ferrovirt_images::PullPolicy::Never,
            };
            let problem = |error| image_problem(reference, error);
            let parsed = ferrovirt_images::Reference::parse(reference).map_err(problem)?;
            let mut logins = secrets.iter().filter_map(|secret| Credentials::from_docker_config(secret, &parsed));
            let credentials = logins.next();
            let image =
                ferrovirt_images::Store::resolve(self, reference, policy, credentials).await.map_err(problem)?;
            self.lease(&image, holder).await.map_err(problem)?;
            Ok(Image {
                digest: image.image_id(),
                root: image.rootfs,
                entrypoint: image.config.entrypoint,
                command: image.config.cmd,
                environment: image.config.env,
                user: image.config.user,
                working_directory: image.config.working_dir,
                stop_signal: None,
            })
        })
    }

    fn release(&self, holder: &str) -> Result<(), String> {
        ferrovirt_images::Store::release(self, holder).map_err(|error| chain(&error))
    }

    fn holders(&self) -> Result<Vec<String>, String> {
        ferrovirt_images::Store::holders(self).map_err(|error| chain(&error))
    }
}

fn image_problem(reference: &str, error: ferrovirt_images::ImageError) -> ImageProblem {
    use ferrovirt_images::ImageError;
    match error {
        ImageError::InvalidReference { reason, .. } => {
            ImageProblem::Reference { reference: reference.to_owned(), reason: reason.to_owned() }
        }
        ImageError::NeverPull { .. } => ImageProblem::NotPresent(reference.to_owned()),
        other => ImageProblem::Pull(chain(&other)),
    }
}
