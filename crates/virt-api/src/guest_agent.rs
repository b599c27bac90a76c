//! What a guest's agent says, in the shape in which users get it. All of it comes from inside the guest.

use ferrovirt_launcher_rpc::messages::{AgentFilesystem, AgentReport, AgentUser};
use serde_json::{Value, json};

/// `guestosinfo`.
pub(crate) fn info(report: &AgentReport, users: &[AgentUser], filesystems: &[AgentFilesystem]) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceGuestAgentInfo",
        "guestAgentVersion": report.version,
        "hostname": report.hostname,
        "os": report.os,
        "timezone": report.timezone,
        "userList": users.iter().map(user).collect::<Vec<_>>(),
        "fsInfo": {"disks": filesystems.iter().map(filesystem).collect::<Vec<_>>()},
        "fsFreezeStatus": if report.frozen { "frozen" } else { "" },
    })
}

/// `userlist`.
pub(crate) fn user_list(users: &[AgentUser]) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceGuestOSUserList", "metadata": {},
        "items": users.iter().map(user).collect::<Vec<_>>(),
    })
}

/// `filesystemlist`.
pub(crate) fn filesystem_list(filesystems: &[AgentFilesystem]) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceFileSystemList", "metadata": {},
        "items": filesystems.iter().map(filesystem).collect::<Vec<_>>(),
    })
}

fn user(user: &AgentUser) -> Value {
    json!({"userName": user.user, "domain": user.domain, "loginTime": user.login_time})
}

fn filesystem(filesystem: &AgentFilesystem) -> Value {
    let disk = |(serial, bus): &(String, String)| json!({"serial": serial, "busType": bus});
    json!({
        "diskName": filesystem.name, "mountPoint": filesystem.mountpoint, "fileSystemType": filesystem.kind,
        "usedBytes": filesystem.used_bytes, "totalBytes": filesystem.total_bytes,
        "disk": filesystem.disks.iter().map(disk).collect::<Vec<_>>(),
    })
}
