//! Paths and bodies of requests, parsed.

use ferrovirt_api::values::Duration;
use ferrovirt_apiserver::http::info::ResourcePath;
use ferrovirt_apiserver::http::options::Query;
use ferrovirt_apiserver::status::{ApiError, ApiResult};
use http::Method;
use serde_json::{Value, json};

/// What a path is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The version of virt-api.
    Version,
    /// Its health.
    Health,
    /// A guest.
    Guest(Wanted),
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

/// What a request is about.
pub(super) fn parse(method: &Method, path: &ResourcePath) -> ApiResult<Target> {
    let reads = *method == Method::GET;
    match path.resource.as_str() {
        "version" if reads && path.name.is_empty() => return Ok(Target::Version),
        "healthz" if reads && path.name.is_empty() => return Ok(Target::Health),
        "virtualmachineinstances" if !path.name.is_empty() && !path.namespace.is_empty() => {}
        _ => return Err(ApiError::no_such_resource()),
    }
    let (read, write) = wanted(path)?;
    let allowed = match *method {
        Method::GET => read,
        Method::PUT => write,
        _ => None,
    };
    allowed.map(Target::Guest).ok_or_else(ApiError::method_not_allowed)
}

/// What GET and PUT mean on a path.
fn wanted(path: &ResourcePath) -> ApiResult<(Option<Wanted>, Option<Wanted>)> {
    let read = match (path.subresource.as_str(), path.tail.as_str()) {
        ("vnc", "screenshot") => Some(Wanted::Screenshot),
        ("guestosinfo", "") => Some(Wanted::GuestInfo),
        ("userlist", "") => Some(Wanted::Users),
        ("filesystemlist", "") => Some(Wanted::Filesystems),
        ("portforward", port) => Some(Wanted::PortForward(self::port(port)?)),
        (word, "") => GuestStream::parse(word).map(Wanted::Stream),
        _ => None,
    };
    let write = Command::parse(&path.subresource).filter(|_| path.tail.is_empty()).map(Wanted::Command);
    if read.is_none() && write.is_none() { Err(ApiError::no_such_resource()) } else { Ok((read, write)) }
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

/// Options that are not supported are refused when they are turned on.
pub(super) fn refuse_options(query: &Query, names: &[&str]) -> ApiResult<()> {
    let on = |name: &&&str| query.get(name).is_some_and(|value| value != "false");
    match names.iter().find(on) {
        Some(name) => Err(ApiError::bad_request(format!("the option {name} is not supported: leave it out"))),
        None => Ok(()),
    }
}

/// The options in a body, which may be empty.
pub(super) fn options(body: &[u8]) -> ApiResult<Value> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(json!({}));
    }
    let options: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("Can not unmarshal Request body to struct, error: {error}")))?;
    if options.is_object() { Ok(options) } else { Err(ApiError::bad_request("the body must be an object")) }
}

/// Whether nothing must be done.
pub(super) fn is_dry_run(options: &Value) -> ApiResult<bool> {
    match &options["dryRun"] {
        Value::Null => Ok(false),
        Value::Array(words) if words.iter().all(|word| word == "All") => Ok(!words.is_empty()),
        other => Err(ApiError::bad_request(format!("dryRun is {other}: use [\"All\"]"))),
    }
}

/// Seconds after which file systems thaw by themselves; five minutes when nothing is said, 0 for never.
pub(super) fn unfreeze_timeout(options: &Value) -> ApiResult<u64> {
    const USUAL: u64 = 300;
    if options["unfreezeTimeout"].is_null() {
        return Ok(USUAL);
    }
    let timeout: Duration = serde_json::from_value(options["unfreezeTimeout"].clone())
        .map_err(|error| ApiError::bad_request(format!("unfreezeTimeout: {error}")))?;
    Ok(timeout.to_std().as_secs())
}

/// The `APIResourceList` entries.
pub(super) fn resources() -> Vec<Value> {
    let entry = |name: &str, namespaced: bool, verb: &str| {
        let kind = if namespaced { "VirtualMachineInstance" } else { "" };
        json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": [verb]})
    };
    let guest = |word: &str, verb: &str| entry(&format!("virtualmachineinstances/{word}"), true, verb);
    let streams = GuestStream::ALL.iter().map(|stream| guest(stream.as_str(), "get"));
    let reads =
        ["vnc/screenshot", "portforward", "guestosinfo", "userlist", "filesystemlist"].map(|word| guest(word, "get"));
    let commands = Command::ALL.iter().map(|command| guest(command.as_str(), "update"));
    let own = ["version", "healthz"].map(|word| entry(word, false, "get"));
    streams.chain(reads).chain(commands).chain(own).collect()
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

    #[test]
    fn every_listed_resource_is_served() {
        for resource in resources() {
            let name = resource["name"].as_str().unwrap();
            let method = if resource["verbs"][0] == "get" { Method::GET } else { Method::PUT };
            let parsed = match name.strip_prefix("virtualmachineinstances/") {
                Some("portforward") => guest(&method, "portforward/22"),
                Some(word) => guest(&method, word),
                None => parsed(&method, name),
            };
            assert!(parsed.is_ok(), "{name}: {parsed:?}");
        }
    }

    #[test]
    fn ports_have_numbers_and_protocols() {
        let port = |number, protocol| Ok(Target::Guest(Wanted::PortForward(Port { number, protocol })));
        assert_eq!(guest(&Method::GET, "portforward/22"), port(22, Protocol::Tcp));
        assert_eq!(guest(&Method::GET, "portforward/53/udp"), port(53, Protocol::Udp));
        for wrong in
            ["portforward", "portforward/0", "portforward/70000", "portforward/22/sctp", "portforward/22/tcp/x"]
        {
            assert_eq!(guest(&Method::GET, wrong).unwrap_err().0, 400, "{wrong}");
        }
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        for (method, word, code) in [
            (Method::PUT, "console", 405),
            (Method::GET, "pause", 405),
            (Method::POST, "pause", 405),
            (Method::GET, "usbredir", 404),
            (Method::GET, "console/x", 404),
            (Method::PUT, "pause/x", 404),
        ] {
            assert_eq!(guest(&method, word).unwrap_err().0, code, "{method} {word}");
        }
        for path in ["pods", "namespaces/a/virtualmachines/b/console", "virtualmachineinstances/b/console", "version/x"]
        {
            assert_eq!(parsed(&Method::GET, path).unwrap_err().0, 404, "{path}");
        }
    }

    #[test]
    fn bodies_may_be_empty_but_not_nonsense() {
        assert_eq!(options(b" \n").unwrap(), json!({}));
        assert_eq!(options(b"[]").unwrap_err().code(), 400);
        assert_eq!(options(b"{").unwrap_err().code(), 400);
        assert!(is_dry_run(&json!({"dryRun": ["All"]})).unwrap());
        assert!(!is_dry_run(&json!({})).unwrap() && !is_dry_run(&json!({"dryRun": []})).unwrap());
        assert_eq!(is_dry_run(&json!({"dryRun": ["Some"]})).unwrap_err().code(), 400);
        assert_eq!(unfreeze_timeout(&json!({})).unwrap(), 300);
        assert_eq!(unfreeze_timeout(&json!({"unfreezeTimeout": "1m30s"})).unwrap(), 90);
        assert_eq!(unfreeze_timeout(&json!({"unfreezeTimeout": "soon"})).unwrap_err().code(), 400);
    }

    #[test]
    fn options_that_do_nothing_are_not_taken() {
        let query = |value: &str| Query(vec![("moveCursor".to_owned(), value.to_owned())]);
        assert!(refuse_options(&query("false"), &["moveCursor"]).is_ok());
        assert_eq!(refuse_options(&query("true"), &["moveCursor"]).unwrap_err().code(), 400);
    }
}
