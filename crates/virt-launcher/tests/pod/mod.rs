//! A launcher in namespaces of its own, and its handler's end of the socket.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod between;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use bytes::Bytes;
use ferrovirt_launcher_rpc::disks::DiskTask;
use ferrovirt_launcher_rpc::messages::{DomainReport, DomainState, FinalWords, Refusal, StartRequest};
use ferrovirt_launcher_rpc::paths;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

/// The guest's uid.
pub(crate) const UID: &str = "0f5a1d6c-8a3e-4b7c-9d55-2f1e0c9b7a66";
/// The domain's name.
pub(crate) const NAME: &str = "default_guest";
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(10);

/// Waits for a byte on the serial port and echoes it. `o` powers off through ACPI, `p` panics through pvpanic, `n` is answered by the next
/// letter of the alphabet, and `d` makes it write 512 KiB of memory all the time, or not any more.
const BOOT_SECTOR: [u8; 89] = [
    0xB3, 0x40, 0x30, 0xFF, 0xFC, // bl = '@'; bh = 0; cld
    0x84, 0xFF, 0x74, 0x19, // again: if bh == 0, poll
    0xB8, 0x00, 0x10, 0x8E, 0xC0, 0x50, 0x31, 0xFF, // for es in 0x1000, 0x2000, …, 0x8000:
    0xB9, 0x00, 0x80, 0x89, 0xF0, 0xF3, 0xAB, 0x46, 0x58, //   64 KiB = si; si += 1
    0x05, 0x00, 0x10, 0x3D, 0x00, 0x90, 0x75, 0xEA, //
    0xBA, 0xFD, 0x03, 0xEC, 0xA8, 0x01, 0x74, 0xDB, // poll: until (in 0x3fd) & 1, again
    0xBA, 0xF8, 0x03, 0xEC, // al = in 0x3f8
    0x3C, b'n', 0x75, 0x04, 0xFE, 0xC3, 0x88, 0xD8, // 'n': al = bl += 1
    0x3C, b'd', 0x75, 0x03, 0x80, 0xF7, 0x01, // 'd': bh ^= 1
    0xEE, // out 0x3f8, al
    0x3C, b'o', 0x74, 0x06, 0x3C, b'p', 0x74, 0x0B, 0xEB, 0xBD, // branch, or again
    0xBA, 0x04, 0x06, 0xB8, 0x00, 0x20, 0xEF, 0xEB, 0xB4, // out 0x604, 0x2000
    0xBA, 0x05, 0x05, 0xB0, 0x01, 0xEE, 0xEB, 0xAC, // out 0x505, 1
];

/// A start of the guest.
pub(crate) fn start_request() -> StartRequest {
    let path = paths::volume_image("root");
    let domain_xml = format!(
        "<domain type='qemu'><name>{NAME}</name><uuid>{UID}</uuid><memory unit='MiB'>32</memory><vcpu>1</vcpu>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>\
         <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>\
         <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{path}'/>\
         <target dev='sda' bus='sata'/><alias name='ua-root'/></disk>\
         <controller type='usb' model='none'/>\
         <serial type='unix'><source mode='bind' path='{serial}'/><log file='{log}' append='on'/></serial>\
         <graphics type='vnc'><listen type='socket' socket='{vnc}'/></graphics><video><model type='vga'/></video>\
         <panic model='isa'/><memballoon model='none'/></devices></domain>",
        serial = paths::serial_socket(UID),
        log = paths::serial_log(UID),
        vnc = paths::vnc_socket(UID),
    );
    let disks = vec![DiskTask::RawImage { volume: "root".to_owned(), path, create: None }];
    StartRequest { uid: UID.to_owned(), name: NAME.to_owned(), domain_xml, disks, dhcp: Vec::new(), paused: false }
}

/// A launcher that runs.
pub(crate) struct Pod {
    /// `unshare`, which ends as the launcher does and takes it along.
    process: Child,
    /// The launcher, pid 1 in there.
    launcher: u32,
    /// Opened while the launcher lives: its directory goes with it.
    termination_log: Option<std::fs::File>,
}

impl Pod {
    /// Starts a launcher and waits for its socket.
    pub(crate) async fn start(grace: &str) -> Self {
        Self::start_with(grace, None).await
    }

    /// Starts a launcher whose volume `shared` is a directory of this machine.
    pub(crate) async fn start_with(grace: &str, shared: Option<&Path>) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pod/pod.sh");
        let boot_sector: String = BOOT_SECTOR.iter().map(|byte| format!("\\0{byte:03o}")).collect();
        let signature = format!("{}\\0125\\0252", "\\0000".repeat(510 - BOOT_SECTOR.len()));
        let process = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", script])
            .arg(env!("CARGO_BIN_EXE_virt-launcher"))
            .args(["--uid", UID, "--name", "guest", "--namespace", "default", "--grace-period-seconds", grace])
            .env("BOOT_SECTOR", boot_sector + &signature)
            .env("SHARED", shared.unwrap_or(Path::new("")))
            .spawn()
            .unwrap();
        let mut pod = Self { process, launcher: 0, termination_log: None };
        let ready = async {
            loop {
                pod.launcher = pod.child().unwrap_or_default();
                if UnixStream::connect(pod.socket()).await.is_ok() {
                    return;
                }
                sleep(STEP).await;
            }
        };
        timeout(PATIENCE, ready).await.expect("the launcher listens");
        pod.termination_log = Some(std::fs::File::open(pod.file("/dev/termination-log")).unwrap());
        pod
    }

    fn child(&self) -> Option<u32> {
        let pid = self.process.id();
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.trim().parse().ok()
    }

    /// A file of the pod, seen from outside.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        // /var/run is a link to /run, which would be followed out of the pod.
        let path = path.replace("/var/run/", "/run/");
        PathBuf::from(format!("/proc/{}/root{path}", self.launcher))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.file(&format!("{}/{}", paths::SOCKETS, paths::LAUNCHER_SOCKET))
    }

    async fn open(&self, method: &str, call: &str, body: &[u8], upgrade: bool) -> http::Response<Incoming> {
        let socket = UnixStream::connect(self.socket()).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().method(method).uri(format!("/v1/{call}")).header("host", "launcher");
        if upgrade {
            request = request.header("connection", "upgrade").header("upgrade", "plain");
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        sender.send_request(request).await.unwrap()
    }

    /// Makes a call.
    pub(crate) async fn call(&self, method: &str, call: &str, body: &[u8]) -> (StatusCode, Bytes) {
        let response = timeout(PATIENCE, self.open(method, call, body, false)).await.expect(call);
        (response.status(), response.into_body().collect().await.unwrap().to_bytes())
    }

    /// Makes a call that may be refused.
    pub(crate) async fn checked(&self, method: &str, call: &str, body: &[u8]) -> Result<Bytes, Refusal> {
        let (status, body) = self.call(method, call, body).await;
        if status.is_success() { Ok(body) } else { Err(serde_json::from_slice(&body).unwrap()) }
    }

    /// GETs.
    pub(crate) async fn get<T: DeserializeOwned>(&self, call: &str) -> T {
        serde_json::from_slice(&self.checked("GET", call, &[]).await.unwrap()).unwrap()
    }

    /// PUTs.
    pub(crate) async fn put(&self, call: &str, body: &[u8]) -> Result<Bytes, Refusal> {
        self.checked("PUT", call, body).await
    }

    /// POSTs without a body.
    pub(crate) async fn post(&self, call: &str) -> Result<Bytes, Refusal> {
        self.checked("POST", call, &[]).await
    }

    /// Starts the guest.
    pub(crate) async fn start_guest(&self, request: &StartRequest) -> DomainReport {
        let body = self.put("domain", &serde_json::to_vec(request).unwrap()).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Starts a guest that cannot be started.
    pub(crate) async fn refused(&self, request: &StartRequest) -> Refusal {
        self.put("domain", &serde_json::to_vec(request).unwrap()).await.unwrap_err()
    }

    /// The report, once it is as wanted.
    pub(crate) async fn until(&self, what: &str, is_wanted: impl Fn(&DomainReport) -> bool) -> DomainReport {
        let mut events = self.events().await;
        let wanted = async {
            loop {
                match events.read().await {
                    Some(report) if is_wanted(&report) => return report,
                    Some(_) => {}
                    None => panic!("the launcher ended before {what}"),
                }
            }
        };
        timeout(PATIENCE, wanted).await.unwrap_or_else(|_| panic!("{what} does not come"))
    }

    /// Follows the reports.
    pub(crate) async fn events(&self) -> Events {
        Events { body: self.open("GET", "events", &[], false).await.into_body(), text: String::new() }
    }

    /// Opens a byte stream.
    pub(crate) async fn stream(&self, call: &str) -> TokioIo<Upgraded> {
        let response = self.open("GET", call, &[], true).await;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        TokioIo::new(hyper::upgrade::on(response).await.unwrap())
    }

    /// The guest answers on its console. What is typed while it boots is lost, so it is typed until it answers.
    pub(crate) async fn echo(&self, console: &mut TokioIo<Upgraded>) {
        let answered = async {
            loop {
                console.write_all(b"#").await.unwrap();
                let mut buffer = [0; 512];
                // SeaBIOS may write as well.
                let read = timeout(Duration::from_millis(200), console.read(&mut buffer)).await;
                if let Ok(count) = read
                    && buffer[..count.unwrap()].contains(&b'#')
                {
                    return;
                }
            }
        };
        timeout(PATIENCE, answered).await.expect("the guest answers on its console");
    }

    /// The guest's answer to a byte: one that it gives once for each question.
    pub(crate) async fn ask(&self, console: &mut TokioIo<Upgraded>, question: u8) -> u8 {
        let answered = async {
            console.write_all(&[question]).await.unwrap();
            loop {
                // An echo of before may come late.
                match console.read_u8().await.unwrap() {
                    b'#' => {}
                    answer => return answer,
                }
            }
        };
        timeout(PATIENCE, answered).await.expect("the guest answers on its console")
    }

    /// The guest goes on where it was paused, on the same console.
    pub(crate) async fn echo_after_unpause(&self, console: &mut TokioIo<Upgraded>) {
        self.post("unpause").await.unwrap();
        self.echo(console).await;
    }

    /// Does something to the domain behind the launcher's back.
    pub(crate) fn virsh(&self, arguments: &[&str]) {
        let socket = format!("qemu+unix:///session?socket={}/libvirt-sock", paths::LIBVIRT);
        let mut virsh = Command::new("nsenter");
        virsh.args(["--pid", "--mount", "--target", &self.launcher.to_string()]);
        virsh.args(["setpriv", "--reuid", "107", "--regid", "107", "--clear-groups", "virsh", "-c", &socket]);
        assert!(virsh.args(arguments).status().unwrap().success());
    }

    /// How many QEMUs run in the pod.
    pub(crate) fn qemus(&self) -> usize {
        let launcher = self.launcher.to_string();
        let ps = Command::new("nsenter")
            .args(["--pid", "--mount", "--target", &launcher, "ps", "-e", "-o", "comm="])
            .output();
        String::from_utf8_lossy(&ps.unwrap().stdout).lines().filter(|name| name.starts_with("qemu-system")).count()
    }

    /// Waits until libvirt is there.
    pub(crate) async fn libvirt_listens(&self) {
        let listens = async {
            while UnixStream::connect(self.file(&format!("{}/libvirt-sock", paths::LIBVIRT))).await.is_err() {
                sleep(STEP).await;
            }
        };
        timeout(PATIENCE, listens).await.expect("libvirt listens");
    }

    /// Repeats a call until libvirt is there again.
    pub(crate) async fn until_done(&self, call: &str) {
        let done = async {
            while let Err(refusal) = self.post(call).await {
                assert!(["NoLibvirt", "LibvirtFailed"].contains(&refusal.reason.as_str()), "{}", refusal.message);
                sleep(STEP).await;
            }
        };
        timeout(PATIENCE, done).await.expect(call);
    }

    /// Kills libvirt and waits until the launcher has started another.
    pub(crate) async fn kill_libvirt(&self) {
        let file = self.file(&format!("{}/libvirtd.pid", paths::LIBVIRT));
        let before = std::fs::read_to_string(&file).unwrap();
        self.kill_inside(&before);
        let restarted = async {
            while std::fs::read_to_string(&file).is_ok_and(|now| now.is_empty() || now == before) {
                sleep(STEP).await;
            }
        };
        timeout(PATIENCE, restarted).await.expect("libvirt is restarted");
    }

    /// Kills QEMU.
    pub(crate) fn kill_qemu(&self) {
        let file = self.file(&format!("{}/qemu/run/{NAME}.pid", paths::LIBVIRT));
        self.kill_inside(&std::fs::read_to_string(file).unwrap());
    }

    fn kill_inside(&self, pid: &str) {
        let launcher = self.launcher.to_string();
        let mut kill = Command::new("nsenter");
        kill.args(["--pid", "--mount", "--target", &launcher, "kill", "-9", pid.trim()]);
        assert!(kill.status().unwrap().success());
    }

    /// The capability files by name and inode; there is at least one.
    pub(crate) fn capability_files(&self) -> Vec<(String, u64)> {
        let directory = self.file(&virt_launcher::daemon::capability_directory().to_string_lossy());
        let files = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = files
            .map(|file| (file.file_name().to_string_lossy().into_owned(), file.metadata().unwrap().ino()))
            .collect();
        files.sort();
        assert!(!files.is_empty());
        files
    }

    /// Sends SIGTERM to the launcher.
    pub(crate) fn terminate(&self) {
        assert!(Command::new("kill").arg(self.launcher.to_string()).status().unwrap().success());
    }

    /// Waits for the launcher's end: its code and its last words.
    pub(crate) async fn end(&mut self) -> (i32, FinalWords) {
        let ended = async {
            loop {
                match self.process.try_wait().unwrap() {
                    Some(status) => return status.code().unwrap(),
                    None => sleep(STEP).await,
                }
            }
        };
        let code = timeout(PATIENCE, ended).await.expect("the launcher ends");
        (code, serde_json::from_reader(self.termination_log.take().unwrap()).unwrap())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // The launcher is pid 1: everything in its namespace ends with it.
        if self.launcher != 0 && self.child() == Some(self.launcher) {
            let _ = Command::new("kill").args(["-9", &self.launcher.to_string()]).status();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reports as they come.
pub(crate) struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    /// The next report.
    pub(crate) async fn next(&mut self) -> DomainReport {
        timeout(PATIENCE, self.read()).await.expect("a report").expect("the stream goes on")
    }

    /// The last report: how the guest ended.
    pub(crate) async fn last(mut self) -> DomainReport {
        loop {
            let report = self.next().await;
            if let DomainState::Off(_) = report.state {
                return report;
            }
        }
    }

    async fn read(&mut self) -> Option<DomainReport> {
        loop {
            if let Some((line, rest)) = self.text.split_once('\n') {
                let report = serde_json::from_str(line).unwrap();
                self.text = rest.to_owned();
                return Some(report);
            }
            let frame = self.body.frame().await?.unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }
}
