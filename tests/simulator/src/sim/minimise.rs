//! Minimising: the shortest part of a history that still fails, by delta debugging.

use super::step::Step;

/// Takes away whatever can be taken away while `fails` says yes; asks it `tries` times at most.
#[must_use]
pub fn minimise(
    mut steps: Vec<Step>,
    mut tries: usize,
    fails: &mut dyn FnMut(&[Step]) -> bool,
) -> Vec<Step> {
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        let mut shrunk = false;
        while at < steps.len() {
            if tries == 0 {
                return steps;
            }
            tries -= 1;
            let end = (at + chunk).min(steps.len());
            let mut rest = steps[..at].to_vec();
            rest.extend_from_slice(&steps[end..]);
            if fails(&rest) {
                steps = rest;
                shrunk = true;
            } else {
                at = end;
            }
        }
        chunk = if shrunk && chunk == 1 { 1 } else { chunk / 2 };
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::step::Op;
    use super::*;

    #[test]
    fn what_matters_is_left() {
        let steps: Vec<Step> = (0..200).map(|at| Step { at, wall: 0, op: Op::Turn }).collect();
        let mut fails =
            |steps: &[Step]| [17, 63, 64].iter().all(|at| steps.iter().any(|s| s.at == *at));
        let left = minimise(steps, 10_000, &mut fails);
        assert_eq!(left.iter().map(|step| step.at).collect::<Vec<_>>(), [17, 63, 64]);
    }
}
