//! Reads what volumes and environments need from the API: config maps, secrets, tokens, claims.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use ferrovirt_kubernetes::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ServiceAccount, ServiceAccountTokenProjection, Volume, VolumeProjection};
use kube::api::PostParams;
use kube::{Api, Client};

use super::VolumeError;
use super::claim::{self, BoundClaim};
use super::payload::{self, Payload, PayloadError};
use crate::oci::environment::{KeyedData, PodFacts};
use crate::sources::PullSecret;

/// How long a token lives when the pod does not say.
const TOKEN_SECONDS: i64 = 3607;

/// Reads objects as the node.
pub struct ObjectReader {
    client: Client,
    tokens: Mutex<HashMap<String, Token>>,
}

/// A token, and when to ask for a new one.
struct Token {
    text: String,
    renew: Timestamp,
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or("default")
}

type Data = BTreeMap<String, Vec<u8>>;

impl ObjectReader {
    /// A reader.
    pub fn new(client: Client) -> Self {
        Self { client, tokens: Mutex::default() }
    }

    async fn config_map(&self, pod: &Pod, name: &str) -> kube::Result<Option<Data>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace(pod));
        Ok(api.get_opt(name).await?.map(payload::config_map_data))
    }

    async fn secret(&self, pod: &Pod, name: &str) -> kube::Result<Option<Data>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace(pod));
        Ok(api.get_opt(name).await?.map(payload::secret_data))
    }

    /// Data of the objects that an environment names; what is not there is left out.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn keyed(&self, pod: &Pod, wanted: &[String]) -> kube::Result<KeyedData> {
        let mut found = KeyedData::new();
        for key in wanted {
            let data = match key.split_once('/') {
                Some(("configmap", name)) => self.config_map(pod, name).await?,
                Some((_, name)) => self.secret(pod, name).await?,
                None => None,
            };
            found.extend(data.map(|data| (key.clone(), data)));
        }
        Ok(found)
    }

    /// The claim of a volume with its persistent volume.
    ///
    /// # Errors
    /// When it is missing, not bound, or not of this machine.
    pub async fn claim(&self, pod: &Pod, volume: &str, name: &str) -> Result<BoundClaim, VolumeError> {
        let api_error = |source| VolumeError::Api { volume: volume.to_owned(), source: Box::new(source) };
        let refused = |reason| VolumeError::Claim { volume: volume.to_owned(), reason };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace(pod));
        let claim = claims.get_opt(name).await.map_err(api_error)?;
        let claim = claim.ok_or_else(|| refused(format!("persistentvolumeclaim {name:?} not found")))?;
        let bound_to = claim::volume_name(&claim).map_err(refused)?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let found = volumes.get_opt(&bound_to).await.map_err(api_error)?;
        let found =
            found.ok_or_else(|| refused(format!("persistent volume {bound_to:?} of claim {name:?} not found")))?;
        claim::bound(&found).map_err(refused)
    }

    /// The files of a config map, secret, downward API or projected volume.
    ///
    /// # Errors
    /// When an object or a key is missing.
    pub async fn payload(&self, pod: &Pod, volume: &Volume, facts: &PodFacts) -> Result<Payload, VolumeError> {
        let of_payload = |source| VolumeError::Payload { volume: volume.name.clone(), source };
        if let Some(source) = &volume.config_map {
            let data = self.config_map(pod, &source.name).await;
            let (data, optional) = (self.answer(volume, data)?, source.optional == Some(true));
            return keys("configmap", &source.name, data, source.items.as_deref(), source.default_mode, optional)
                .map_err(of_payload);
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            let data = self.secret(pod, name).await;
            let (data, optional) = (self.answer(volume, data)?, source.optional == Some(true));
            return keys("secret", name, data, source.items.as_deref(), source.default_mode, optional)
                .map_err(of_payload);
        }
        if let Some(source) = &volume.downward_api {
            let items = source.items.as_deref().unwrap_or_default();
            return payload::from_fields(pod, facts, items, source.default_mode).map_err(of_payload);
        }
        let mut all = Payload::new();
        let projected = volume.projected.clone().unwrap_or_default();
        for source in projected.sources.iter().flatten() {
            all.extend(self.projection(pod, volume, source, projected.default_mode, facts).await?);
        }
        Ok(all)
    }

    fn answer(&self, volume: &Volume, data: kube::Result<Option<Data>>) -> Result<Option<Data>, VolumeError> {
        data.map_err(|source| VolumeError::Api { volume: volume.name.clone(), source: Box::new(source) })
    }

    async fn projection(
        &self,
        pod: &Pod,
        volume: &Volume,
        source: &VolumeProjection,
        mode: Option<i32>,
        facts: &PodFacts,
    ) -> Result<Payload, VolumeError> {
        let of_payload = |source| VolumeError::Payload { volume: volume.name.clone(), source };
        if let Some(source) = &source.config_map {
            let data = self.config_map(pod, &source.name).await;
            let (data, optional) = (self.answer(volume, data)?, source.optional == Some(true));
            return keys("configmap", &source.name, data, source.items.as_deref(), mode, optional).map_err(of_payload);
        }
        if let Some(source) = &source.secret {
            let data = self.secret(pod, &source.name).await;
            let (data, optional) = (self.answer(volume, data)?, source.optional == Some(true));
            return keys("secret", &source.name, data, source.items.as_deref(), mode, optional).map_err(of_payload);
        }
        if let Some(source) = &source.downward_api {
            let items = source.items.as_deref().unwrap_or_default();
            return payload::from_fields(pod, facts, items, mode).map_err(of_payload);
        }
        if let Some(source) = &source.service_account_token {
            let token = self.token(pod, source).await;
            let token =
                token.map_err(|source| VolumeError::Api { volume: volume.name.clone(), source: Box::new(source) })?;
            return payload::from_token(&source.path, token, mode).map_err(of_payload);
        }
        let reason = "this node projects configMap, secret, downwardAPI and serviceAccountToken".to_owned();
        Err(VolumeError::Unsupported { volume: volume.name.clone(), reason })
    }

    /// A token of the pod's account; the same one until four fifths of its life are over.
    async fn token(&self, pod: &Pod, source: &ServiceAccountTokenProjection) -> kube::Result<String> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let audience = source.audience.clone().unwrap_or_default();
        let (key, now) = (format!("{uid}/{audience}"), Timestamp::now());
        if let Ok(tokens) = self.tokens.lock()
            && let Some(token) = tokens.get(&key)
            && now < token.renew
        {
            return Ok(token.text.clone());
        }
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let seconds = source.expiration_seconds.unwrap_or(TOKEN_SECONDS);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(audience).filter(|audience| !audience.is_empty()).map(|audience| vec![audience]),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: Some(uid),
                }),
                expiration_seconds: Some(seconds),
            }),
            ..TokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace(pod));
        let text = api.create_token_request(account, &PostParams::default(), &request).await?.status;
        let text = text.and_then(|status| status.token).unwrap_or_default();
        let renew = now.checked_add(jiff::SignedDuration::from_secs(seconds * 4 / 5)).unwrap_or(now);
        if let Ok(mut tokens) = self.tokens.lock() {
            tokens.retain(|_, token| token.renew > now);
            tokens.insert(key, Token { text: text.clone(), renew });
        }
        Ok(text)
    }

    /// The pod's image pull secrets; an unusable one is skipped, as a registry may not need it.
    pub async fn pull_secrets(&self, pod: &Pod) -> Vec<PullSecret> {
        let mut secrets = Vec::new();
        for reference in pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten()) {
            match self.secret(pod, &reference.name).await {
                Ok(data) => secrets.extend(data.and_then(|mut data| data.remove(".dockerconfigjson"))),
                Err(error) => tracing::warn!(secret = %reference.name, %error, "cannot read an image pull secret"),
            }
        }
        secrets
    }
}

fn keys(
    kind: &'static str,
    name: &str,
    data: Option<Data>,
    items: Option<&[k8s_openapi::api::core::v1::KeyToPath]>,
    mode: Option<i32>,
    optional: bool,
) -> Result<Payload, PayloadError> {
    match data {
        Some(data) => payload::from_keys(kind, name, &data, items, mode, optional),
        None if optional => Ok(Payload::new()),
        None => Err(PayloadError::Object { kind, name: name.to_owned() }),
    }
}
