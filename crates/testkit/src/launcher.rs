//! virt-handler's way to the simulated launchers of its node.

use std::sync::Arc;
use std::time::Duration;

use ferrovirt_api::VirtualMachineInstance;
use ferrovirt_kubernetes::Pod;
use ferrovirt_launcher_rpc::messages::{DomainReport, DomainState, StartRequest};
use ferrovirt_launcher_rpc::migration::{CancelRequest, Channel, SourceRequest, TargetRequest, VerdictRequest};
use ferrovirt_launcher_rpc::network::GuestLink;
use ferrovirt_virt_handler::launcher::{Answer, Command, Launcher, LauncherError, Launchers, SHORT, Stream};
use ferrovirt_virt_handler::process::PodProcess;
use ferrovirt_virt_handler::wiring::{Wiring, WiringError};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};

use crate::component::Life;
use crate::machine::Process;
use crate::network::held;
use crate::world::World;

/// The launchers of one node, for one life of its virt-handler.
pub(crate) struct NodeLaunchers {
    pub(crate) world: Arc<World>,
    pub(crate) node: usize,
    pub(crate) life: Life,
}

impl Launchers for NodeLaunchers {
    fn connect<'a>(&'a self, pod_uid: &'a str) -> Answer<'a, Arc<dyn Launcher>> {
        Box::pin(async move {
            self.world.pause(1..10).await;
            self.life.or_never().await;
            let process = self.world.machine.process(pod_uid);
            let process = process.filter(|process| process.node == self.node && process.ended().is_none());
            let process = process.ok_or_else(|| LauncherError::Unreachable("no process".to_owned()))?;
            let connected = Connected { world: self.world.clone(), process, life: self.life.clone() };
            Ok(Arc::new(connected) as Arc<dyn Launcher>)
        })
    }

    fn remains<'a>(&'a self, pod_uid: &'a str) -> BoxFuture<'a, std::io::Result<bool>> {
        Box::pin(async move {
            self.world.pause(1..10).await;
            self.life.or_never().await;
            let process = self.world.machine.process(pod_uid);
            Ok(process.is_some_and(|process| process.node == self.node && process.ended().is_none()))
        })
    }
}

struct Connected {
    world: Arc<World>,
    process: Arc<Process>,
    life: Life,
}

impl Connected {
    /// A call travels, and arrives if both sides live.
    async fn arrive(&self) -> Result<(), LauncherError> {
        self.world.pause(1..10).await;
        self.life.or_never().await;
        match self.process.ended() {
            Some(_) => Err(LauncherError::Unreachable("the process has ended".to_owned())),
            None => Ok(()),
        }
    }

    /// A call about a move. In rough times it is lost, or its answer is, or it comes once more, much later.
    async fn deliver(&self, call: impl Fn(&Arc<World>, &Arc<Process>) + Send + 'static) -> Result<(), LauncherError> {
        self.arrive().await?;
        let (world, process) = (&self.world, &self.process);
        if world.is_rough() && world.chance(15) {
            if world.chance(50) {
                call(world, process);
            }
            tokio::time::sleep(SHORT).await;
            return Err(LauncherError::Timeout(SHORT));
        }
        call(world, process);
        if world.is_rough() && world.chance(25) {
            let (world, process) = (world.clone(), process.clone());
            tokio::spawn(async move {
                world.pause(0..20_000).await;
                if process.ended().is_none() {
                    call(&world, &process);
                }
            });
        }
        self.arrive().await
    }
}

impl Launcher for Connected {
    fn process(&self) -> Option<&Arc<PodProcess>> {
        None
    }

    fn prepare(&self, _: Vec<u8>) -> Answer<'_, ()> {
        Box::pin(self.arrive())
    }

    fn capabilities(&self) -> Answer<'_, Vec<u8>> {
        Box::pin(async { Err(LauncherError::Protocol("there is nothing to keep".to_owned())) })
    }

    fn start(&self, request: StartRequest) -> Answer<'_, DomainReport> {
        Box::pin(async move {
            self.arrive().await?;
            self.process.begin(&self.world, &request.uid);
            let mut reports = self.process.reports();
            let report = reports.wait_for(|report| report.state != DomainState::Starting).await;
            self.arrive().await?;
            Ok(report)
        })
    }

    fn events(&self) -> Answer<'_, BoxStream<'static, DomainReport>> {
        Box::pin(async move {
            self.arrive().await?;
            let reports = self.process.reports();
            let (process, life, world) = (self.process.clone(), self.life.clone(), self.world.clone());
            let events = stream::unfold(reports, move |mut reports| {
                let (process, life, world) = (process.clone(), life.clone(), world.clone());
                async move {
                    loop {
                        tokio::select! {
                            biased;
                            () = reports.changed() => {}
                            // Connections end with the process at their other end.
                            () = world.machine.ended.notified() => {
                                if process.ended().is_some() {
                                    return None;
                                }
                                continue;
                            }
                        }
                        world.pause(1..10).await;
                        life.or_never().await;
                        if process.ended().is_some() {
                            return None;
                        }
                        let report = reports.take();
                        return Some((report, reports));
                    }
                }
            });
            Ok(events.boxed())
        })
    }

    fn command(&self, command: Command) -> Answer<'_, ()> {
        Box::pin(async move {
            self.arrive().await?;
            self.world.note(|| format!("virt-handler tells {}: {command:?}", self.process.guest));
            match command {
                Command::Shutdown { grace_seconds } => {
                    self.process.ask_to_end(&self.world, Duration::from_secs(grace_seconds), "virt-handler");
                }
                Command::Kill => self.process.kill(&self.world, "virt-handler"),
                Command::Done => self.process.note_done(),
                _ => {}
            }
            Ok(())
        })
    }

    fn read(&self, _: &'static str) -> Answer<'_, (String, Vec<u8>)> {
        Box::pin(async { Err(LauncherError::Protocol("nothing can be read here".to_owned())) })
    }

    fn open(&self, _: &'static str) -> Answer<'_, Box<dyn Stream>> {
        Box::pin(async { Err(LauncherError::Protocol("nothing can be opened here".to_owned())) })
    }

    fn prepare_target(&self, request: TargetRequest) -> Answer<'_, ()> {
        Box::pin(async move {
            self.world.pause(20..800).await;
            self.deliver(move |world, process| process.prepare_target(world, &request)).await
        })
    }

    fn begin_move(&self, request: SourceRequest) -> Answer<'_, ()> {
        Box::pin(self.deliver(move |world, process| process.begin_move(world, &request)))
    }

    fn cancel_move(&self, request: CancelRequest) -> Answer<'_, ()> {
        Box::pin(self.deliver(move |world, process| process.cancel_move(world, &request)))
    }

    fn tell_verdict(&self, request: VerdictRequest) -> Answer<'_, ()> {
        Box::pin(self.deliver(move |world, process| process.tell_verdict(world, &request)))
    }

    fn outgoing<'a>(&'a self, id: &'a str) -> Answer<'a, (Channel, Box<dyn Stream>)> {
        Box::pin(async move {
            self.arrive().await?;
            let (channel, stream) = tokio::select! {
                biased;
                made = self.process.outgoing(&self.world, id) => made?,
                () = self.process.dies() => return Err(LauncherError::Unreachable("the process has ended".to_owned())),
            };
            Ok((channel, held(&self.world, stream, &self.life)))
        })
    }

    fn incoming<'a>(&'a self, id: &'a str, channel: Channel) -> Answer<'a, Box<dyn Stream>> {
        Box::pin(async move {
            self.arrive().await?;
            let stream = self.process.incoming(&self.world, id, channel)?;
            Ok(held(&self.world, stream, &self.life))
        })
    }
}

/// Guests without a network.
pub(crate) struct NoLinks;

impl Wiring for NoLinks {
    fn links<'a>(
        &'a self,
        _: &'a VirtualMachineInstance,
        _: &'a Pod,
        _: &'a dyn Launcher,
    ) -> BoxFuture<'a, Result<Vec<GuestLink>, WiringError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
