//! Elements about processors: how many, which, where they run, and their NUMA nodes.

use serde::Serialize;
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Vcpu {
    #[serde(rename = "@placement")]
    pub(crate) placement: &'static str,
    #[serde(rename = "@current")]
    pub(crate) current: Option<u32>,
    #[serde(rename = "$text")]
    pub(crate) count: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Vcpus {
    pub(crate) vcpu: Vec<VcpuState>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VcpuState {
    #[serde(rename = "@id")]
    pub(crate) id: u32,
    #[serde(rename = "@enabled")]
    pub(crate) enabled: &'static str,
    #[serde(rename = "@hotpluggable")]
    pub(crate) hotpluggable: &'static str,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Cpu {
    #[serde(rename = "@mode")]
    pub(crate) mode: &'static str,
    #[serde(rename = "@match")]
    pub(crate) matching: Option<&'static str>,
    #[serde(rename = "@check")]
    pub(crate) check: Option<&'static str>,
    pub(crate) model: Option<Model>,
    pub(crate) topology: Topology,
    pub(crate) feature: Vec<Feature>,
    pub(crate) numa: Option<Numa>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Model {
    #[serde(rename = "@fallback")]
    pub(crate) fallback: &'static str,
    #[serde(rename = "$text")]
    pub(crate) name: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Topology {
    #[serde(rename = "@sockets")]
    pub(crate) sockets: u32,
    #[serde(rename = "@cores")]
    pub(crate) cores: u32,
    #[serde(rename = "@threads")]
    pub(crate) threads: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Feature {
    #[serde(rename = "@name")]
    pub(crate) name: String,
    #[serde(rename = "@policy")]
    pub(crate) policy: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Numa {
    pub(crate) cell: Vec<Cell>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cell {
    #[serde(rename = "@id")]
    pub(crate) id: u32,
    #[serde(rename = "@cpus")]
    pub(crate) cpus: String,
    #[serde(rename = "@memory")]
    pub(crate) memory: u64,
    #[serde(rename = "@unit")]
    pub(crate) unit: &'static str,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct CpuTune {
    pub(crate) vcpupin: Vec<VcpuPin>,
    pub(crate) emulatorpin: Option<EmulatorPin>,
    pub(crate) iothreadpin: Vec<IoThreadPin>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct VcpuPin {
    #[serde(rename = "@vcpu")]
    pub(crate) vcpu: u32,
    #[serde(rename = "@cpuset")]
    pub(crate) cpuset: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EmulatorPin {
    #[serde(rename = "@cpuset")]
    pub(crate) cpuset: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IoThreadPin {
    #[serde(rename = "@iothread")]
    pub(crate) iothread: u32,
    #[serde(rename = "@cpuset")]
    pub(crate) cpuset: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NumaTune {
    pub(crate) memory: NodeMemory,
    pub(crate) memnode: Vec<CellMemory>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NodeMemory {
    #[serde(rename = "@mode")]
    pub(crate) mode: &'static str,
    #[serde(rename = "@nodeset")]
    pub(crate) nodeset: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CellMemory {
    #[serde(rename = "@cellid")]
    pub(crate) cell: u32,
    #[serde(rename = "@mode")]
    pub(crate) mode: &'static str,
    #[serde(rename = "@nodeset")]
    pub(crate) nodeset: String,
}
