//! A virtual machine under test.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use blackbox::cluster::{Answer, GUESTS, wait};
use blackbox::console::Console;
use blackbox::guest::{Guest, condition};
use http::Method;
use serde_json::{Value, json};

use crate::stage::Stage;

/// How long a guest may take to run beside others that boot without KVM.
const START: u64 = 90;
/// How long something that should not happen is given to happen.
const QUIET: Duration = Duration::from_millis(1500);

/// A virtual machine.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) stage: Stage,
    pub(crate) name: String,
}

impl Machine {
    fn path(&self) -> String {
        self.stage.scene.path(GUESTS, &format!("virtualmachines/{}", self.name))
    }

    /// The object as it is now.
    pub(crate) async fn get(&self) -> Result<Value> {
        self.stage.scene.cluster.get(&self.path()).await
    }

    /// The object, if it is there.
    pub(crate) async fn find(&self) -> Result<Option<Value>> {
        self.stage.scene.cluster.find(&self.path()).await
    }

    /// The object of the guest it has now.
    pub(crate) async fn find_guest(&self) -> Result<Option<Value>> {
        let path = self.stage.scene.path(GUESTS, &format!("virtualmachineinstances/{}", self.name));
        self.stage.scene.cluster.find(&path).await
    }

    /// The guest it has now.
    pub(crate) async fn guest(&self) -> Result<Guest> {
        let object = self.find_guest().await?.with_context(|| format!("machine {} has no guest", self.name))?;
        Ok(self.guest_of(&object))
    }

    fn guest_of(&self, object: &Value) -> Guest {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Guest { scene: self.stage.scene.clone(), name: self.name.clone(), uid }
    }

    /// Changes the object by a merge patch.
    pub(crate) async fn patch(&self, change: &Value) -> Result<Value> {
        self.stage.scene.cluster.patch(&self.path(), change).await
    }

    /// Asks for something: `start`, `stop`, …
    pub(crate) async fn ask(&self, action: &str, body: &Value) -> Result<Answer> {
        self.stage.subresource(Method::PUT, &format!("virtualmachines/{}/{action}", self.name), body).await
    }

    /// Asks for something that has to be accepted.
    pub(crate) async fn accept(&self, action: &str, body: &Value) -> Result<()> {
        let answer = self.ask(action, body).await?;
        ensure!(answer.code == 202, "{action} is answered with {}: {}", answer.code, answer.body);
        Ok(())
    }

    /// Asks for something that has to be refused with a code and these words.
    pub(crate) async fn refuse(&self, action: &str, body: &Value, code: u16, words: &str) -> Result<()> {
        let answer = self.ask(action, body).await?;
        expect_refusal(action, &answer, code, words)
    }

    /// Waits for a `printableStatus`.
    pub(crate) async fn reach(&self, status: &str, seconds: u64) -> Result<Value> {
        let what = format!("machine {} to be {status}", self.name);
        let reached = wait(&what, seconds, || async {
            let object = self.get().await?;
            Ok((object["status"]["printableStatus"] == status).then_some(object))
        });
        match reached.await {
            Ok(object) => Ok(object),
            Err(error) => Err(error.context(format!("its status is {}", self.get().await?["status"]))),
        }
    }

    /// Waits until it runs, and returns its guest.
    pub(crate) async fn running(&self) -> Result<Guest> {
        self.running_but("").await
    }

    /// Waits until it runs with another guest than the one with this uid.
    pub(crate) async fn running_but(&self, old: &str) -> Result<Guest> {
        let what = format!("machine {} to run with a new guest", self.name);
        let run = wait(&what, START, || async {
            let Some(guest) = self.find_guest().await? else { return Ok(None) };
            let runs = guest["status"]["phase"] == "Running" && guest["metadata"]["uid"] != old;
            let shown = runs && self.get().await?["status"]["printableStatus"] == "Running";
            Ok(shown.then(|| self.guest_of(&guest)))
        });
        match run.await {
            Ok(guest) => Ok(guest),
            Err(error) => Err(error.context(format!("its status is {}", self.get().await?["status"]))),
        }
    }

    /// Waits until it runs and root is logged in.
    pub(crate) async fn login(&self) -> Result<(Guest, Console)> {
        let guest = self.running().await?;
        let console = guest.login().await?;
        Ok((guest, console))
    }

    /// Waits until it is `Stopped` and has neither guest nor pod.
    pub(crate) async fn stopped(&self) -> Result<()> {
        self.reach("Stopped", 90).await?;
        wait(&format!("the guest of machine {} to be gone", self.name), 60, || async {
            let pods = self.stage.scene.cluster.get(&self.stage.scene.path("/api/v1", "pods")).await?;
            let pods = pods["items"].as_array().map_or(0, Vec::len);
            Ok((self.find_guest().await?.is_none() && pods == 0).then_some(()))
        })
        .await
    }

    /// For a while nothing happens: the guest stays the one with this uid (none, where it is empty), in this phase, and the machine shows
    /// this status, with no request left over.
    pub(crate) async fn stays(&self, uid: &str, phase: &str, status: &str) -> Result<()> {
        wait("requests to be done with", 30, || async {
            let requests = &self.get().await?["status"]["stateChangeRequests"];
            Ok(requests.as_array().is_none_or(Vec::is_empty).then_some(()))
        })
        .await?;
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            let guest = self.find_guest().await?.unwrap_or_default();
            let (now, is) = (guest["metadata"]["uid"].as_str(), guest["status"]["phase"].as_str());
            ensure!(now.unwrap_or_default() == uid, "there is another guest than {uid:?}: {now:?} in phase {is:?}");
            ensure!(is.unwrap_or_default() == phase, "the guest is {is:?}, not {phase:?}");
            let shown = self.get().await?["status"]["printableStatus"].clone();
            ensure!(shown == status, "the machine shows {shown}, not {status}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Waits for a condition with this value.
    pub(crate) async fn condition(&self, kind: &str, status: &str, seconds: u64) -> Result<Value> {
        wait(&format!("condition {kind}={status} of machine {}", self.name), seconds, || async {
            Ok(condition(&self.get().await?, kind).filter(|condition| condition["status"] == status).cloned())
        })
        .await
    }

    /// Waits until there is no such condition, or it is False.
    pub(crate) async fn no_condition(&self, kind: &str, seconds: u64) -> Result<()> {
        wait(&format!("machine {} to have no condition {kind}", self.name), seconds, || async {
            let object = self.get().await?;
            Ok(condition(&object, kind).is_none_or(|condition| condition["status"] == "False").then_some(()))
        })
        .await
    }

    /// The strategy it has now.
    pub(crate) async fn strategy(&self) -> Result<String> {
        Ok(self.get().await?["spec"]["runStrategy"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until machine, guest and pod are gone.
    pub(crate) async fn gone(&self) -> Result<()> {
        wait(&format!("machine {} to be gone", self.name), 60, || async {
            Ok((self.find().await?.is_none() && self.find_guest().await?.is_none()).then_some(()))
        })
        .await
    }

    /// Deletes the pod of the guest it has now, as `kubectl delete pod` does; `force` gives it no time.
    pub(crate) async fn delete_pod(&self, force: bool) -> Result<()> {
        let guest = self.guest().await?;
        let pod = wait("the launcher pod", 60, || guest.pod()).await?;
        let Some(name) = pod["metadata"]["name"].as_str() else { bail!("a pod without a name") };
        let path = self.stage.scene.path("/api/v1", &format!("pods/{name}"));
        let options = if force { json!({"gracePeriodSeconds": 0}) } else { json!({}) };
        self.stage.scene.cluster.ask(Method::DELETE, &path, Some(&options)).await?;
        Ok(())
    }
}

/// The answer is a refusal with this code, as a `Status`, and has these words.
pub(crate) fn expect_refusal(what: &str, answer: &Answer, code: u16, words: &str) -> Result<()> {
    let message = answer.body["message"].as_str().unwrap_or_default();
    ensure!(answer.code == code, "{what} is answered with {}, not {code}: {}", answer.code, answer.body);
    ensure!(answer.body["kind"] == "Status" && answer.body["code"] == code, "{what}: no Status, but {}", answer.body);
    ensure!(message.contains(words), "{what} is refused without {words:?}: {message}");
    Ok(())
}
