//! The order of a merged list.
//!
//! Elements that the patch names come in the patch's order; elements that only the server has keep the server's order
//! and are woven in before the first named element that stood behind them.

use serde_json::Value;

use super::{DIRECTIVE, SET_ORDER, bad_type, go_list, no_merge_key};
use crate::patch::PatchError;

/// Arranges `merged` so that what `wanted` lists follows its order and the rest follows `before`, the list as it was.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    if let Some(key) = key {
        for list in [&merged, wanted, before] {
            require_key(list, key)?;
        }
    }
    let rank = |list: &[Value], item: &Value| {
        let identity = identity(item, key);
        list.iter().position(|other| self::identity(other, key) == identity)
    };
    let (mut named, mut rest): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| rank(wanted, item).is_some());
    named.sort_by_key(|item| rank(wanted, item));
    rest.sort_by_key(|item| rank(before, item).unwrap_or(usize::MAX));

    let mut arranged = Vec::with_capacity(named.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for item in named {
        let place = rank(before, &item);
        while let Some(candidate) = rest.peek() {
            match (rank(before, candidate), place) {
                (Some(left), Some(right)) if left < right => arranged.extend(rest.next()),
                _ => break,
            }
        }
        arranged.push(item);
    }
    arranged.extend(rest);
    Ok(arranged)
}

/// The elements of a patch must be a subsequence of the order that comes with it; deletions do not count.
pub(super) fn check_patch_order(patch: &[Value], wanted: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut remaining = wanted.iter();
    for element in patch {
        if key.is_some() && !element.is_object() {
            return Err(bad_type("map[string]interface {}", element));
        }
        let is_placed = match element.get(DIRECTIVE) {
            Some(directive) if key.is_some() && directive == "delete" => true,
            // kube-apiserver passes over other directives only while there is order left to look at.
            Some(_) => remaining.len() > 0,
            None => {
                let mut found = false;
                while !found && let Some(place) = remaining.next() {
                    if let Some(key) = key {
                        require_key(std::slice::from_ref(element), key)?;
                        require_key(std::slice::from_ref(place), key)?;
                    }
                    found = identity(place, key) == identity(element, key);
                }
                found
            }
        };
        if !is_placed {
            return Err(PatchError::Unclassified(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                go_list(patch),
                go_list(wanted)
            )));
        }
    }
    Ok(())
}

fn identity<'a>(item: &'a Value, key: Option<&str>) -> &'a Value {
    match key {
        Some(key) => item.get(key).unwrap_or(&Value::Null),
        None => item,
    }
}

fn require_key(list: &[Value], key: &str) -> Result<(), PatchError> {
    for item in list {
        let members = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))?;
        if !members.contains_key(key) {
            return Err(no_merge_key(members, key));
        }
    }
    Ok(())
}
