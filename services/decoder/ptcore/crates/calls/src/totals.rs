//! What the calls add up to.

use crate::functions::FunctionTotals;
use crate::records::{Records, NO_PARENT};

/// The calls below each call: `children[first[call]..first[call + 1]]`, those without a parent first.
struct Tree {
    first: Vec<u32>,
    children: Vec<u32>,
}

impl Tree {
    fn of(parents: &[u32]) -> Tree {
        let bucket = |parent: u32| if parent == NO_PARENT { 0 } else { parent as usize + 1 };
        let mut first = vec![0u32; parents.len() + 2];
        for &parent in parents {
            first[bucket(parent) + 1] += 1;
        }
        for index in 1..first.len() {
            first[index] += first[index - 1];
        }
        let mut next = first.clone();
        let mut children = vec![0; parents.len()];
        for (&parent, call) in parents.iter().zip(0..) {
            let at = &mut next[bucket(parent)];
            children[*at as usize] = call;
            *at += 1;
        }
        Tree { first, children }
    }

    fn bounds(&self, bucket: usize) -> (u32, u32) {
        (self.first[bucket], self.first[bucket + 1])
    }
}

/// A call whose children are being added up.
struct Open {
    row: usize,
    next: u32,
    end: u32,
    instructions: u64,
    ticks: u64,
}

/// Fills in every call's depth and total, and the totals of the functions, and puts the calls in the order in which they
/// began, callers before what they call.
pub fn add_up(records: &mut Records, functions: &mut [FunctionTotals]) {
    let tree = Tree::of(&records.parent);
    let mut open = vec![0u32; functions.len()];
    let mut path: Vec<Open> = Vec::new();
    let mut order = Vec::with_capacity(records.len());
    let (mut root, roots) = tree.bounds(0);
    loop {
        let below = match path.last_mut() {
            Some(call) if call.next < call.end => {
                call.next += 1;
                Some(call.next - 1)
            }
            Some(_) => None,
            None if root < roots => {
                root += 1;
                Some(root - 1)
            }
            None => break,
        };
        if let Some(below) = below {
            let row = tree.children[below as usize] as usize;
            let (next, end) = tree.bounds(row + 1);
            records.depth[row] = path.len() as u32;
            order.push(row as u32);
            open[records.function[row] as usize] += 1;
            path.push(Open { row, next, end, instructions: 0, ticks: 0 });
        } else if let Some(call) = path.pop() {
            let (instructions, ticks) = close(&call, records, functions, &mut open);
            if let Some(above) = path.last_mut() {
                above.instructions += instructions;
                above.ticks += ticks;
            }
        }
    }
    if !order.is_sorted() {
        records.reorder(&order);
    }
}

/// Instructions and ticks of the call with all below it.
fn close(call: &Open, records: &mut Records, functions: &mut [FunctionTotals], open: &mut [u32]) -> (u64, u64) {
    let row = call.row;
    let own = records.instructions[row];
    let instructions = own + call.instructions;
    records.instructions_total[row] = instructions;
    let ticks =
        if records.start_tsc[row] == 0 { 0 } else { records.end_tsc[row].saturating_sub(records.start_tsc[row]) };
    let number = records.function[row] as usize;
    let function = &mut functions[number];
    function.calls += 1;
    function.self_instructions += own;
    function.self_ticks += ticks.saturating_sub(call.ticks);
    open[number] -= 1;
    if open[number] == 0 {
        function.total_instructions += instructions;
        function.total_ticks += ticks;
    }
    (instructions, ticks)
}
