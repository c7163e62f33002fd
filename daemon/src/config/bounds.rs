//! Bounds of the resources of a tool's call or a server's instance, checked.

use std::ops::RangeInclusive;

use ceased_process::Bounds;

use super::check::Checker;
use super::kinds::{Bytes, Count};
use super::raw;
use super::units::show_size;

/// Range of `memory_max`: below it no program starts.
const MEMORY_MAX: RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Range of `pids_max`: up to the largest number of processes of the kernel.
const PIDS_MAX: RangeInclusive<u64> = 1..=1 << 22;
/// Range of `cpu_max` in percent: from the least quota of the kernel to more processors than there
/// are.
const CPU_MAX: RangeInclusive<u32> = 1..=1_000_000;

/// Checks the bounds of a table.
pub(super) fn bounds(written: &raw::Confinement, check: &mut Checker<'_>) -> Bounds {
    let memory_max = written.memory_max.read(&Bytes(MEMORY_MAX), check).map(|bytes| bytes as u64);
    let pids_max = written.pids_max.read(&Count(PIDS_MAX), check);
    let nice = written.nice.read(&Count(0..=19), check);
    let cpu_max = &written.cpu_max;
    let cpu_max = cpu_max.as_ref().and_then(|written| {
        let text = written.get_ref();
        let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
        let percent = percent.filter(|percent| CPU_MAX.contains(percent));
        if percent.is_none() {
            let (least, most) = (CPU_MAX.start(), CPU_MAX.end());
            let hint = format!(
                "it takes {least}% to {most}% of one processor, such as \"150%\" for one and a half"
            );
            check.bad_value(cpu_max.key(), written.span().start, &format!("{text:?}"), hint);
        }
        percent
    });
    Bounds { memory_max, pids_max, cpu_max, nice }
}

/// Describes bounds, as far as they are configured.
pub(super) fn describe_bounds(bounds: &Bounds, more: &mut impl FnMut(String)) {
    let Bounds { memory_max, pids_max, cpu_max, nice } = bounds;
    let rows = [
        memory_max.map(|bytes| format!("memory_max {}", show_size(bytes))),
        pids_max.map(|count| format!("pids_max {count}")),
        cpu_max.map(|percent| format!("cpu_max {percent}%")),
        nice.map(|nice| format!("nice {nice}")),
    ];
    rows.into_iter().flatten().for_each(more);
}
