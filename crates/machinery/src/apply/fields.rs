//! A set of field paths, kept as a trie, and its wire form `fieldsV1`.

use serde_json::{Map, Value};

use super::path::{PathElement, PathElementError};
use super::shape;
use crate::schema::Schema;

/// A set of paths.
///
/// Being a member and having members below are independent: a manager may own `.metadata.labels` (the map), one label
/// in it, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Sorted by element; a node is a member, has children, or both.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    element: PathElement,
    member: bool,
    children: FieldSet,
}

/// A `fieldsV1` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// A key is not a path element.
    #[error(transparent)]
    Element(#[from] PathElementError),
    /// Something is not an object.
    #[error("fieldsV1 holds a value that is not an object")]
    NotAnObject,
}

impl FieldSet {
    /// The set without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set of paths made of field names only: `[["metadata", "name"], ["kind"]]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(*name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    /// Adds a path. Its parents do not become members. The empty path, the whole object, is never a member.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut set = self;
        for element in parents {
            set = &mut set.node_mut(element).children;
        }
        set.node_mut(last).member = true;
    }

    /// Whether the path is a member.
    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut set = self;
        for element in parents {
            match set.node(element) {
                Some(node) => set = &node.children,
                None => return false,
            }
        }
        set.node(last).is_some_and(|node| node.member)
    }

    /// Whether `element` itself is a member, and the members below it.
    pub(super) fn at(&self, element: &PathElement) -> (bool, Option<&Self>) {
        match self.node(element) {
            Some(node) => (node.member, (!node.children.is_empty()).then_some(&node.children)),
            None => (false, None),
        }
    }

    /// Puts a whole subtree in place; only for elements that come in any order but once each.
    pub(super) fn graft(&mut self, element: PathElement, member: bool, children: Self) {
        if !member && children.is_empty() {
            return;
        }
        let node = Node { element, member, children };
        match self.nodes.last() {
            Some(last) if last.element >= node.element => match self.position(&node.element) {
                Ok(index) => {
                    let existing = &mut self.nodes[index];
                    existing.member |= node.member;
                    existing.children = existing.children.union(&node.children);
                }
                Err(index) => self.nodes.insert(index, node),
            },
            _ => self.nodes.push(node),
        }
    }

    fn position(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    fn node(&self, element: &PathElement) -> Option<&Node> {
        self.position(element).ok().map(|index| &self.nodes[index])
    }

    fn node_mut(&mut self, element: &PathElement) -> &mut Node {
        let index = self.position(element).unwrap_or_else(|index| {
            self.nodes.insert(index, Node { element: element.clone(), member: false, children: Self::new() });
            index
        });
        &mut self.nodes[index]
    }

    /// What is in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, Keep { only_left: true, only_right: true }, |a, b| a || b, Self::union)
    }

    /// What is in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, Keep { only_left: false, only_right: false }, |a, b| a && b, Self::intersection)
    }

    /// What is in this set and not in the other. Members below a path stay when only the path itself is taken away.
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, Keep { only_left: true, only_right: false }, |a, b| a && !b, Self::difference)
    }

    /// What is in this set and neither in the other nor below one of its members.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut out = Self::new();
        for node in &self.nodes {
            match other.node(&node.element) {
                None => out.nodes.push(node.clone()),
                Some(theirs) if theirs.member => {}
                Some(theirs) => {
                    out.push(&node.element, node.member, node.children.recursive_difference(&theirs.children));
                }
            }
        }
        out
    }

    /// What is at or below a member of the other set.
    pub fn recursive_intersection(&self, other: &Self) -> Self {
        let mut out = Self::new();
        for node in &self.nodes {
            match other.node(&node.element) {
                None => {}
                Some(theirs) if theirs.member => out.nodes.push(node.clone()),
                Some(theirs) => out.push(&node.element, false, node.children.recursive_intersection(&theirs.children)),
            }
        }
        out
    }

    /// The members that have no members below them.
    pub fn leaves(&self) -> Self {
        let mut out = Self::new();
        for node in &self.nodes {
            out.push(&node.element, node.member && node.children.is_empty(), node.children.leaves());
        }
        out
    }

    /// The same set with every named field of the schema a member that has members below it. Sets hold the leaves of
    /// structs only; taking things out of an object needs to know of the structs too.
    pub(super) fn with_named_fields(&self, schema: Option<&Schema>) -> Self {
        let mut out = Self::new();
        for node in &self.nodes {
            let named = matches!(&node.element, PathElement::Field(name) if shape::is_named(schema, name));
            let below = match &node.element {
                PathElement::Field(name) => shape::member_schema(schema, name),
                PathElement::Key(_) => shape::item_schema(schema),
                _ => None,
            };
            let member = node.member || (named && !node.children.is_empty());
            out.push(&node.element, member, node.children.with_named_fields(below));
        }
        out
    }

    /// Calls `visit` for every node in order with its element, whether it is a member, and what is below.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&PathElement, bool, &Self)) {
        for node in &self.nodes {
            visit(&node.element, node.member, &node.children);
        }
    }

    /// All paths: the members of a level before what is below it.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::with_capacity(self.len());
        self.collect_paths(&mut Vec::new(), &mut out);
        out
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            out.push(path);
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            prefix.push(node.element.clone());
            node.children.collect_paths(prefix, out);
            prefix.pop();
        }
    }

    fn push(&mut self, element: &PathElement, member: bool, children: Self) {
        if member || !children.is_empty() {
            self.nodes.push(Node { element: element.clone(), member, children });
        }
    }

    /// Walks two sorted sets side by side.
    fn combine(
        &self,
        other: &Self,
        keep: Keep,
        member: fn(bool, bool) -> bool,
        children: fn(&Self, &Self) -> Self,
    ) -> Self {
        let mut out = Self::new();
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => return out,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(a), Some(b)) => a.element.cmp(&b.element),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            match (a, b) {
                (Some(a), Some(b)) => {
                    out.push(&a.element, member(a.member, b.member), children(&a.children, &b.children));
                }
                (Some(a), None) if keep.only_left => out.nodes.push(a.clone()),
                (None, Some(b)) if keep.only_right => out.nodes.push(b.clone()),
                _ => {}
            }
        }
    }

    /// Reads `fieldsV1`.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        match fields {
            Value::Null => Ok(Self::new()),
            Value::Object(members) => Self::read(members).map(|(set, _)| set),
            _ => Err(FieldsError::NotAnObject),
        }
    }

    /// Reads one level; also says whether it marks its own path as a member.
    fn read(members: &Map<String, Value>) -> Result<(Self, bool), FieldsError> {
        let mut set = Self::new();
        let mut itself = false;
        for (key, below) in members {
            if key == "." {
                itself = true;
                continue;
            }
            let Some(element) = PathElement::parse(key)? else { continue };
            let (children, member) = match below {
                Value::Object(members) => Self::read(members)?,
                Value::Null => (Self::new(), true),
                _ => return Err(FieldsError::NotAnObject),
            };
            set.graft(element, member, children);
        }
        let itself = itself || set.is_empty();
        Ok((set, itself))
    }

    /// Writes `fieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.write(false))
    }

    fn write(&self, itself: bool) -> Map<String, Value> {
        let mut members = Map::new();
        if itself && !self.is_empty() {
            members.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            members.insert(node.element.encode(), Value::Object(node.children.write(node.member)));
        }
        members
    }

    /// Whether a `fieldsV1`, not decoded, names any path of this set: as a member, or, for a member of this set,
    /// anything below it. Never answers `false` wrongly for a value that [`Self::to_fields_v1`] has written.
    pub(super) fn touches(&self, fields: &Value) -> bool {
        let Value::Object(members) = fields else { return false };
        self.nodes.iter().any(|node| {
            members.get(&node.element.encode()).is_some_and(|below| node.member || node.children.touches(below))
        })
    }
}

/// Which nodes of only one side survive a combination.
#[derive(Clone, Copy)]
struct Keep {
    only_left: bool,
    only_right: bool,
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
