//! The layer of each item.

use std::collections::VecDeque;

use super::level::{Item, Level};
use crate::kind::Kind;
use crate::scene::Scene;

/// The layer of each item of a level: below everything that it uses, as far up as that allows;
/// an item that uses nothing (a parameter) is right above its first user. Inlets are in the first
/// layer and outlets in the last, alone.
///
/// Items may use each other in a cycle: two modules whose calls a pass has interleaved. A cycle is
/// cut at its first item in the program, and one line of it goes up.
pub(super) fn ranks(scene: &Scene, level: &Level) -> Vec<u32> {
    let count = level.items.len();
    let mut users: Vec<Vec<u32>> = vec![Vec::new(); count];
    let mut waiting = vec![0_u32; count];
    for net in &level.nets {
        for sink in &net.sinks {
            users[net.source as usize].push(sink.item);
            waiting[sink.item as usize] += 1;
        }
    }
    let is_inlet = |item: usize| matches!(level.items[item], Item::Inlet(_));
    let first = u32::from((0..count).any(is_inlet));
    let mut ranks: Vec<u32> = (0..count)
        .map(|item| if is_inlet(item) { 0 } else { first })
        .collect();

    let uses_nothing: Vec<bool> = waiting.iter().map(|&inputs| inputs == 0).collect();
    let mut done = vec![false; count];
    let mut ready: VecDeque<usize> = (0..count).filter(|&item| waiting[item] == 0).collect();
    let mut sorted = Vec::with_capacity(count);
    let mut next_in_program = 0;
    while sorted.len() < count {
        let item = ready.pop_front().or_else(|| {
            // A cycle: go on with the first item of the program, without the items it waits for.
            let rest = next_in_program..count;
            let first = rest.into_iter().find(|&item| !done[item]);
            next_in_program = first.map_or(count, |item| item + 1);
            first
        });
        let Some(item) = item else { break };
        if std::mem::replace(&mut done[item], true) {
            continue;
        }
        sorted.push(item);
        for &user in &users[item] {
            let user = user as usize;
            if done[user] {
                continue;
            }
            ranks[user] = ranks[user].max(ranks[item] + 1);
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.push_back(user);
            }
        }
    }

    // The picture begins with the program's inputs.
    let is_input = |item: usize| match level.items[item] {
        Item::Node(node) => scene.nodes[node as usize].kind == Kind::Input,
        Item::Group(_) | Item::Inlet(_) | Item::Outlet(_) => false,
    };
    let is_outlet = |item: usize| matches!(level.items[item], Item::Outlet(_));
    let last = (0..count)
        .filter(|&item| !is_outlet(item))
        .map(|item| ranks[item])
        .max();
    let last = last.map_or(0, |rank| rank + 1);
    for item in (0..count).filter(|&item| is_outlet(item)) {
        ranks[item] = last;
    }
    for &item in sorted.iter().rev() {
        let is_parameter = uses_nothing[item] && !is_inlet(item) && !is_input(item);
        let lowest = users[item].iter().map(|&user| ranks[user as usize]).min();
        if let Some(lowest) = lowest.filter(|_| is_parameter) {
            ranks[item] = ranks[item].max(lowest.saturating_sub(1));
        }
    }
    ranks
}
