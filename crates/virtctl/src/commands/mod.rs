//! The commands, one file for each group.

pub(crate) mod completion;
pub(crate) mod console;
pub(crate) mod create;
pub(crate) mod expand;
pub(crate) mod expose;
pub(crate) mod guest;
pub(crate) mod installation;
pub(crate) mod migrate;
pub(crate) mod objects;
pub(crate) mod pause;
pub(crate) mod port_forward;
pub(crate) mod power;
pub(crate) mod ssh;
pub(crate) mod validate;
pub(crate) mod version;
pub(crate) mod vnc;
pub(crate) mod volumes;
pub(crate) mod vouch;

use serde_json::{Value, json};

/// `dryRun` of an options body, with the line that says so.
pub(crate) fn dry_run(options: &mut Value, wanted: bool) {
    if wanted {
        options["dryRun"] = json!(["All"]);
        println!("Dry Run execution");
    }
}
