//! Launches of captures whose kernels carry no correlation id (Chrome JSON made from Nsight Systems files): on one stream,
//! the n-th launch call launched the n-th kernel. Taken only where it can be checked.

use crate::profile::trace::{CallKind, Trace, Work};

/// Joins kernels to launch calls by order. Returns how many; 0 where the order proves nothing: more than one stream, counts
/// that differ, or a kernel that would start before its launch.
pub fn join(trace: &mut Trace) -> usize {
    let ops = &trace.operations;
    let lane = ops.first().map(|o| (o.device, o.stream));
    if ops.iter().any(|o| o.correlation != 0 || Some((o.device, o.stream)) != lane) {
        return 0;
    }
    let mut kernels: Vec<usize> = (0..ops.len()).filter(|&i| ops[i].work == Work::Kernel).collect();
    kernels.sort_by_key(|&i| (ops[i].start, ops[i].end));
    let launches = |i: &usize| {
        let c = &trace.calls[*i];
        c.kind == CallKind::Launch && trace.names.text(c.name).contains("Launch")
    };
    let mut calls: Vec<usize> = (0..trace.calls.len()).filter(launches).collect();
    calls.sort_by_key(|&i| (trace.calls[i].start, trace.calls[i].end));
    let causal = kernels.iter().zip(&calls).all(|(&k, &c)| ops[k].start >= trace.calls[c].start);
    if kernels.is_empty() || kernels.len() != calls.len() || !causal {
        return 0;
    }
    let fresh = trace.calls.iter().map(|c| c.correlation).max().unwrap_or(0);
    for (n, (&k, &c)) in kernels.iter().zip(&calls).enumerate() {
        let call = &mut trace.calls[c];
        if call.correlation == 0 {
            call.correlation = fresh.saturating_add(n as u64 + 1);
        }
        trace.operations[k].correlation = call.correlation;
    }
    kernels.len()
}
