//! Paths of requests, parsed.

use ferrovirt_apiserver::http::info::ResourcePath;
use ferrovirt_apiserver::http::options::Query;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use http::Method;
use serde_json::{Value, json};

use crate::cluster::Kind;

/// What a path is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The version of virt-api.
    Version,
    /// Its health.
    Health,
    /// The image with libguestfs.
    GuestFs,
    /// A virtual machine in the body is to be expanded.
    Expand,
    /// A virtual machine.
    Machine(MachineWanted),
    /// A guest.
    Guest(Wanted),
    /// Something of an object that KubeVirt has and this does not have yet: the object's kind and what to do instead.
    NotYet(Kind, &'static str),
}

/// What is wanted of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineWanted {
    /// Another state.
    Power(Power),
    /// What it is when everything it refers to is filled in.
    Expanded,
    /// A connection to one of its guest's ports.
    PortForward(Port),
    /// Its guest may stay on its node.
    CancelEvacuation,
}

/// What is wanted of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A stream of bytes.
    Stream(GuestStream),
    /// A picture of the display.
    Screenshot,
    /// A connection to one of its ports.
    PortForward(Port),
    /// Something is done to it.
    Command(Command),
    /// It may stay on its node.
    CancelEvacuation,
    /// What its agent knows.
    GuestInfo,
    /// Who is logged in.
    Users,
    /// What is mounted.
    Filesystems,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word in the path, here and at virt-handler.
            pub(super) const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }
        }
    };
}

words! {
    /// Streams of a guest.
    GuestStream {
        /// The first serial console.
        Console = "console",
        /// The display.
        Vnc = "vnc",
    }
}

words! {
    /// Changes of a virtual machine's state.
    Power {
        /// A guest is started.
        Start = "start",
        /// The guest is stopped.
        Stop = "stop",
        /// The guest is stopped and another started.
        Restart = "restart",
        /// The guest moves to another node.
        Migrate = "migrate",
    }
}

words! {
    /// What can be done to a guest.
    Command {
        /// Its CPUs stop.
        Pause = "pause",
        /// They go on.
        Unpause = "unpause",
        /// Its file systems are frozen.
        Freeze = "freeze",
        /// They thaw.
        Unfreeze = "unfreeze",
        /// Power is cut for a moment.
        Reset = "reset",
        /// It is asked to reboot.
        SoftReboot = "softreboot",
    }
}

words! {
    /// Transports of forwarded ports.
    Protocol {
        /// TCP
        Tcp = "tcp",
        /// UDP
        Udp = "udp",
    }
}

/// A port of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) number: u16,
    pub(super) protocol: Protocol,
}

const HOTPLUG: &str = "volumes cannot be plugged into or out of a running guest: change spec.template.spec.volumes and restart the machine";
const NOTHING: &str = "there is no other way to it";

/// What KubeVirt serves besides: kind, path below an object's name, verb, and what to do instead.
const NOT_YET: [(Kind, &str, &str, &str); 16] = [
    (Kind::Machine, "addvolume", "update", HOTPLUG),
    (Kind::Machine, "removevolume", "update", HOTPLUG),
    (Kind::Machine, "memorydump", "update", NOTHING),
    (Kind::Machine, "removememorydump", "update", NOTHING),
    (Kind::Machine, "objectgraph", "get", "virtctl why follows a machine through its objects"),
    (Kind::Guest, "addvolume", "update", HOTPLUG),
    (Kind::Guest, "removevolume", "update", HOTPLUG),
    (Kind::Guest, "objectgraph", "get", "virtctl why follows a machine through its objects"),
    (Kind::Guest, "usbredir", "get", NOTHING),
    (Kind::Guest, "vsock", "get", "forward a port"),
    (Kind::Guest, "sev/fetchcertchain", "get", NOTHING),
    (Kind::Guest, "sev/querylaunchmeasurement", "get", NOTHING),
    (Kind::Guest, "sev/setupsession", "update", NOTHING),
    (Kind::Guest, "sev/injectlaunchsecret", "update", NOTHING),
    (Kind::Guest, "backup", "update", NOTHING),
    (Kind::Guest, "redefine-checkpoint", "update", NOTHING),
];

/// What a request is about.
pub(super) fn parse(method: &Method, path: &ResourcePath) -> ApiResult<Target> {
    let kind = match (path.resource.as_str(), path.namespace.is_empty(), path.name.is_empty()) {
        ("version", true, true) => return only(method, &Method::GET, Target::Version),
        ("healthz", true, true) => return only(method, &Method::GET, Target::Health),
        ("guestfs", true, true) => return only(method, &Method::GET, Target::GuestFs),
        ("expand-vm-spec", false, true) => return only(method, &Method::PUT, Target::Expand),
        ("virtualmachines", false, false) => Kind::Machine,
        ("virtualmachineinstances", false, false) => Kind::Guest,
        _ => return Err(ApiError::no_such_resource()),
    };
    let (read, write) = match kind {
        Kind::Machine => of_machine(path)?,
        _ => of_guest(path)?,
    };
    let wanted = match *method {
        Method::GET => read,
        Method::PUT => write,
        _ => None,
    };
    wanted.ok_or_else(ApiError::method_not_allowed)
}

fn only(method: &Method, allowed: &Method, target: Target) -> ApiResult<Target> {
    if method == allowed { Ok(target) } else { Err(ApiError::method_not_allowed()) }
}

/// What GET and PUT mean on a path below a machine.
fn of_machine(path: &ResourcePath) -> ApiResult<(Option<Target>, Option<Target>)> {
    let read = match (path.subresource.as_str(), path.tail.as_str()) {
        ("expand-spec", "") => Some(MachineWanted::Expanded),
        ("portforward", port) => Some(MachineWanted::PortForward(self::port(port)?)),
        _ => None,
    };
    let write = match (path.subresource.as_str(), path.tail.as_str()) {
        ("evacuate", "cancel") => Some(MachineWanted::CancelEvacuation),
        (word, "") => Power::parse(word).map(MachineWanted::Power),
        _ => None,
    };
    or_not_yet(Kind::Machine, path, read.map(Target::Machine), write.map(Target::Machine))
}

/// What GET and PUT mean on a path below a guest.
fn of_guest(path: &ResourcePath) -> ApiResult<(Option<Target>, Option<Target>)> {
    let read = match (path.subresource.as_str(), path.tail.as_str()) {
        ("vnc", "screenshot") => Some(Wanted::Screenshot),
        ("guestosinfo", "") => Some(Wanted::GuestInfo),
        ("userlist", "") => Some(Wanted::Users),
        ("filesystemlist", "") => Some(Wanted::Filesystems),
        ("portforward", port) => Some(Wanted::PortForward(self::port(port)?)),
        (word, "") => GuestStream::parse(word).map(Wanted::Stream),
        _ => None,
    };
    let write = match (path.subresource.as_str(), path.tail.as_str()) {
        ("evacuate", "cancel") => Some(Wanted::CancelEvacuation),
        (word, "") => Command::parse(word).map(Wanted::Command),
        _ => None,
    };
    or_not_yet(Kind::Guest, path, read.map(Target::Guest), write.map(Target::Guest))
}

fn or_not_yet(
    kind: Kind,
    path: &ResourcePath,
    read: Option<Target>,
    write: Option<Target>,
) -> ApiResult<(Option<Target>, Option<Target>)> {
    if read.is_some() || write.is_some() {
        return Ok((read, write));
    }
    let below = below_name(path);
    let known = NOT_YET.iter().find(|(of, word, ..)| *of == kind && *word == below);
    let (_, _, verb, instead) = known.ok_or_else(ApiError::no_such_resource)?;
    let target = Some(Target::NotYet(kind, instead));
    Ok(if *verb == "get" { (target, None) } else { (None, target) })
}

/// The subresource as roles name it: all of the path below the object, but not a port.
pub(super) fn below_name(path: &ResourcePath) -> String {
    match path.tail.as_str() {
        "" => path.subresource.clone(),
        _ if path.subresource == "portforward" => path.subresource.clone(),
        tail => format!("{}/{tail}", path.subresource),
    }
}

/// `80`, `80/tcp` or `53/udp`.
fn port(text: &str) -> ApiResult<Port> {
    let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let number = number.parse::<u16>().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| ApiError::bad_request(format!("'{text}' names no port: use 1 to 65535")))?;
    let protocol = Protocol::parse(protocol)
        .ok_or_else(|| ApiError::bad_request(format!("protocol '{protocol}' is not supported: use tcp or udp")))?;
    Ok(Port { number, protocol })
}

/// What virt-handler is asked for. A console has two options of our own: `log` shows what the guest wrote so far, `watch` what it
/// writes from now on; neither takes the console from anybody.
pub(super) fn stream_path(stream: GuestStream, query: &Query) -> ApiResult<String> {
    let is_on = |name: &&str| query.get(name).is_some_and(|value| value == "true");
    let on: Vec<String> =
        ["log", "watch"].iter().filter(|name| is_on(name)).map(|name| format!("{name}=true")).collect();
    match stream {
        GuestStream::Vnc if !on.is_empty() => {
            Err(ApiError::bad_request(format!("the display has no option {}: only the console has", on.join(", "))))
        }
        _ if on.is_empty() => Ok(stream.as_str().to_owned()),
        _ => Ok(format!("{}?{}", stream.as_str(), on.join("&"))),
    }
}

/// Options that are not supported are refused when they are turned on.
pub(super) fn refuse_options(query: &Query, names: &[&str]) -> ApiResult<()> {
    let on = |name: &&&str| query.get(name).is_some_and(|value| value != "false");
    match names.iter().find(on) {
        Some(name) => Err(ApiError::bad_request(format!("the option {name} is not supported: leave it out"))),
        None => Ok(()),
    }
}

/// The `APIResourceList` entries: what works. What does not yet is answered by name all the same, with what to do instead.
pub(crate) fn resources() -> Vec<Value> {
    let entry = |name: &str, namespaced: bool, kind: &str, verb: &str| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": [verb]});
    let of = |kind: Kind, word: &str, verb: &str| {
        let name = if kind == Kind::Machine { "VirtualMachine" } else { "VirtualMachineInstance" };
        entry(&format!("{}/{word}", kind.resource().1), true, name, verb)
    };
    let mut all = vec![entry("expand-vm-spec", true, "VirtualMachine", "update")];
    all.extend(["expand-spec", "portforward"].map(|word| of(Kind::Machine, word, "get")));
    all.extend(Power::ALL.iter().map(|power| of(Kind::Machine, power.as_str(), "update")));
    all.extend([Kind::Machine, Kind::Guest].map(|kind| of(kind, "evacuate/cancel", "update")));
    all.extend(GuestStream::ALL.iter().map(|stream| of(Kind::Guest, stream.as_str(), "get")));
    let reads = ["vnc/screenshot", "portforward", "guestosinfo", "userlist", "filesystemlist"];
    all.extend(reads.map(|word| of(Kind::Guest, word, "get")));
    all.extend(Command::ALL.iter().map(|command| of(Kind::Guest, command.as_str(), "update")));
    all.extend(["version", "healthz"].map(|word| entry(word, false, "", "get")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrovirt_apiserver::http::info::RequestInfo;

    fn parsed(method: &Method, rest: &str) -> Result<Target, (u16, String)> {
        let path = format!("/apis/subresources.kubevirt.io/v1/{rest}");
        let info = RequestInfo::parse(method, &path, &[]);
        parse(method, &info.resource.unwrap()).map_err(|error| (error.code().as_u16(), error.message().to_owned()))
    }

    fn guest(method: &Method, word: &str) -> Result<Target, (u16, String)> {
        parsed(method, &format!("namespaces/a/virtualmachineinstances/b/{word}"))
    }

    fn machine(method: &Method, word: &str) -> Result<Target, (u16, String)> {
        parsed(method, &format!("namespaces/a/virtualmachines/b/{word}"))
    }

    #[test]
    fn every_listed_resource_is_served() {
        for resource in resources() {
            let name = resource["name"].as_str().unwrap();
            let method = if resource["verbs"][0] == "get" { Method::GET } else { Method::PUT };
            let port = |word: &str| if word == "portforward" { "portforward/22".to_owned() } else { word.to_owned() };
            let parsed = match name.split_once('/') {
                Some(("virtualmachineinstances", word)) => guest(&method, &port(word)),
                Some((_, word)) => machine(&method, &port(word)),
                None if resource["namespaced"] == true => parsed(&method, &format!("namespaces/a/{name}")),
                None => parsed(&method, name),
            };
            let works = parsed.is_ok_and(|target| !matches!(target, Target::NotYet(..) | Target::GuestFs));
            assert!(works, "{name} is listed and does not work");
        }
    }

    #[test]
    fn ports_have_numbers_and_protocols() {
        let port = |number, protocol| Port { number, protocol };
        let of_guest = |port| Ok(Target::Guest(Wanted::PortForward(port)));
        assert_eq!(guest(&Method::GET, "portforward/22"), of_guest(port(22, Protocol::Tcp)));
        assert_eq!(guest(&Method::GET, "portforward/53/udp"), of_guest(port(53, Protocol::Udp)));
        let of_machine = Ok(Target::Machine(MachineWanted::PortForward(port(22, Protocol::Tcp))));
        assert_eq!(machine(&Method::GET, "portforward/22/tcp"), of_machine);
        for wrong in
            ["portforward", "portforward/0", "portforward/70000", "portforward/22/sctp", "portforward/22/tcp/x"]
        {
            assert_eq!(guest(&Method::GET, wrong).unwrap_err().0, 400, "{wrong}");
            assert_eq!(machine(&Method::GET, wrong).unwrap_err().0, 400, "{wrong}");
        }
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        for (method, word, code) in [
            (Method::PUT, "console", 405),
            (Method::GET, "pause", 405),
            (Method::POST, "pause", 405),
            (Method::PUT, "usbredir", 405),
            (Method::GET, "console/x", 404),
            (Method::PUT, "pause/x", 404),
            (Method::PUT, "start", 404),
        ] {
            assert_eq!(guest(&method, word).unwrap_err().0, code, "{method} {word}");
        }
        for (method, word, code) in [
            (Method::GET, "start", 405),
            (Method::POST, "start", 405),
            (Method::DELETE, "stop", 405),
            (Method::PUT, "expand-spec", 405),
            (Method::GET, "memorydump", 405),
            (Method::PUT, "start/now", 404),
            (Method::GET, "console", 404),
        ] {
            assert_eq!(machine(&method, word).unwrap_err().0, code, "{method} {word}");
        }
        for path in
            ["pods", "virtualmachineinstances/b/console", "virtualmachines/b/start", "version/x", "namespaces/a"]
        {
            assert_eq!(parsed(&Method::GET, path).unwrap_err().0, 404, "{path}");
        }
        assert_eq!(parsed(&Method::GET, "namespaces/a/expand-vm-spec").unwrap_err().0, 405);
    }

    #[test]
    fn what_is_missing_is_known_by_name() {
        assert_eq!(machine(&Method::PUT, "addvolume"), Ok(Target::NotYet(Kind::Machine, HOTPLUG)));
        assert_eq!(guest(&Method::PUT, "sev/setupsession"), Ok(Target::NotYet(Kind::Guest, NOTHING)));
    }

    #[test]
    fn rights_are_about_the_whole_path_but_not_about_ports() {
        for (path, subresource) in [
            ("vnc", "vnc"),
            ("vnc/screenshot", "vnc/screenshot"),
            ("evacuate/cancel", "evacuate/cancel"),
            ("portforward/22/tcp", "portforward"),
        ] {
            let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/b/{path}");
            let info = RequestInfo::parse(&Method::GET, &path, &[]);
            assert_eq!(below_name(&info.resource.unwrap()), subresource);
        }
    }

    #[test]
    fn only_a_console_is_watched() {
        let query = |names: &[&str]| Query(names.iter().map(|name| ((*name).to_owned(), "true".to_owned())).collect());
        let path = |stream, names: &[&str]| stream_path(stream, &query(names)).map_err(|error| error.code().as_u16());
        assert_eq!(path(GuestStream::Console, &[]).unwrap(), "console");
        assert_eq!(path(GuestStream::Console, &["watch", "log", "other"]).unwrap(), "console?log=true&watch=true");
        assert_eq!(path(GuestStream::Vnc, &["other"]).unwrap(), "vnc");
        assert_eq!(path(GuestStream::Vnc, &["watch"]), Err(400));
    }

    #[test]
    fn options_that_do_nothing_are_not_taken() {
        let query = |value: &str| Query(vec![("moveCursor".to_owned(), value.to_owned())]);
        assert!(refuse_options(&query("false"), &["moveCursor"]).is_ok());
        assert_eq!(refuse_options(&query("true"), &["moveCursor"]).unwrap_err().code(), 400);
    }
}
