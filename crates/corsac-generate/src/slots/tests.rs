use std::collections::HashMap;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::request::TextLimits;

/// A model whose next token depends on all tokens of the text and their positions.
struct Hashing {
    limits: TextLimits,
}

/// Rows of columns with a token and its position.
type Grid = Vec<Vec<Option<(u32, usize)>>>;

fn hashing(length: usize, longest_step: usize) -> Hashing {
    Hashing {
        limits: TextLimits {
            vocabulary: 50,
            length,
            longest_step,
            fewest_columns: longest_step,
            stop: vec![3],
        },
    }
}

/// The logits after a text.
fn logits(text: &[u32]) -> Vec<f32> {
    let hash = text.iter().fold(17_u64, |hash, &token| {
        hash.wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(u64::from(token) + 1)
    });
    let value = |token: u64| ((hash >> 20) ^ (token * 2_654_435_761)) % 1009;
    (0..50).map(|token| value(token) as f32).collect()
}

impl Steps for Hashing {
    type Caches = Grid;

    fn limits(&self) -> &TextLimits {
        &self.limits
    }

    fn new_caches(&self, rows: usize, columns: usize) -> Result<Grid, GenerateError> {
        assert!(columns <= self.limits.length);
        Ok(vec![vec![None; columns]; rows])
    }

    fn columns(caches: &Grid) -> usize {
        caches[0].len()
    }

    fn copy(
        &self,
        from: &Grid,
        row: usize,
        columns: Range<usize>,
        to: &mut Grid,
        (other, at): (usize, usize),
    ) -> Result<(), GenerateError> {
        to[other].fill(None);
        to[other][at..at + columns.len()].clone_from_slice(&from[row][columns]);
        Ok(())
    }

    fn read(&self, caches: &mut Grid, step: &Step<'_>) -> Result<Vec<f32>, GenerateError> {
        let rows = step.read.len();
        assert_eq!(caches.len(), rows);
        let len = step.tokens.len() / rows;
        assert!(len <= self.limits.longest_step);
        let mut found = Vec::new();
        for (row, tokens) in step.tokens.chunks(len).enumerate() {
            for (at, &token) in tokens.iter().enumerate() {
                let place = &mut caches[row][step.column + at];
                *place = Some((token, step.read[row] + at));
            }
            let first = step.column - step.read[row];
            let columns = &caches[row][first..step.column + len];
            // A free row.
            if step.read[row] == 0 && rows > 1 {
                found.extend(logits(&[]));
                continue;
            }
            let text: Vec<u32> = (0..)
                .zip(columns)
                .map(|(position, own)| {
                    let (token, at) = own.expect("a token");
                    assert_eq!(at, position);
                    token
                })
                .collect();
            found.extend(logits(&text));
        }
        Ok(found)
    }
}

/// The text that the model makes of a request, computed from whole texts.
fn expected(request: &Request, limits: &TextLimits) -> (Vec<u32>, Finish) {
    let mut sequence = Sequence::new(request.clone(), limits);
    loop {
        if let Some(finish) = sequence.extend(&logits(&sequence.tokens)) {
            return (sequence.tokens, finish);
        }
    }
}

/// Runs requests, each of which is added before a step.
fn run(
    steps: &Hashing,
    most: usize,
    requests: &[(usize, Request)],
) -> HashMap<usize, (Vec<u32>, Finish)> {
    let mut slots = Slots::new(most);
    let mut texts: HashMap<SequenceId, (usize, Vec<u32>)> = HashMap::new();
    let mut found = HashMap::new();
    for step in 0..10_000 {
        for (number, (when, request)) in requests.iter().enumerate() {
            if *when == step {
                let id = slots.add(steps, request.clone()).unwrap();
                texts.insert(id, (number, request.prompt.clone()));
            }
        }
        for token in slots.step(steps).unwrap() {
            let (number, text) = texts.get_mut(&token.sequence).unwrap();
            text.push(token.token);
            if let Some(finish) = token.finish {
                found.insert(*number, (text.clone(), finish));
            }
        }
        assert!(slots.rows.len() <= most);
        if slots.len() == 0 && requests.iter().all(|(when, _)| *when <= step) {
            return found;
        }
    }
    panic!("it does not end");
}

#[test]
fn a_text_is_continued_until_it_ends() {
    let steps = hashing(1000, 16);
    let mut request = Request::new([5, 6, 7]);
    request.max_new_tokens = 300;
    request.stop = Some(Vec::new());
    let found = run(&steps, 1, &[(0, request.clone())]);
    assert_eq!(found[&0], expected(&request, &steps.limits));
    assert_eq!((found[&0].0.len(), found[&0].1), (303, Finish::Length));
}

#[test]
fn texts_end_where_the_model_takes_no_more() {
    let steps = hashing(40, 16);
    for len in [1, 39, 40] {
        let mut request = Request::new(vec![9; len]);
        request.stop = Some(Vec::new());
        let (text, finish) = run(&steps, 1, &[(0, request)])[&0].clone();
        assert_eq!((text.len(), finish), (41, Finish::Full));
    }
    let mut slots = Slots::new(1);
    let error = slots.add(&steps, Request::new(vec![9; 41])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the prompt has 41 tokens, and the model takes 40"
    );
    assert!(slots.add(&steps, Request::new([])).is_err());
    assert!(slots.add(&steps, Request::new([50])).is_err());
    assert_eq!(slots.len(), 0);
}

#[test]
fn a_sequence_can_be_removed_while_others_go_on() {
    let steps = hashing(1000, 16);
    let mut slots = Slots::new(2);
    let stopless = |prompt: &[u32]| Request {
        stop: Some(Vec::new()),
        max_new_tokens: 20,
        ..Request::new(prompt)
    };
    let ids = [[1, 2], [8, 9], [4, 5]].map(|own| slots.add(&steps, stopless(&own)).unwrap());
    let mut text = vec![8, 9];
    for _ in 0..5 {
        for new in slots.step(&steps).unwrap() {
            if new.sequence == ids[1] {
                text.push(new.token);
            }
        }
    }
    assert!(slots.remove(&steps, ids[0]));
    assert!(slots.remove(&steps, ids[2]));
    assert!(!slots.remove(&steps, ids[2]));
    while slots.len() > 0 {
        text.extend(slots.step(&steps).unwrap().iter().map(|new| new.token));
    }
    assert_eq!(text, expected(&stopless(&[8, 9]), &steps.limits).0);
}

proptest! {
    #[test]
    fn texts_that_are_continued_together_are_those_that_are_continued_alone(
        requests in prop::collection::vec(
            (0_usize..60, prop::collection::vec(0_u32..50, 1..150), 1_usize..120, 0_u64..3, any::<bool>()),
            1..10,
        ),
        most in 1_usize..6,
        length in 150_usize..400,
        longest_step in 1_usize..100,
    ) {
        let steps = hashing(length, longest_step);
        let requests: Vec<(usize, Request)> = requests
            .into_iter()
            .map(|(when, prompt, max_new_tokens, seed, has_stop)| {
                let mut request = Request::new(prompt);
                request.max_new_tokens = max_new_tokens;
                request.sampling.seed = seed;
                request.sampling.temperature = if seed == 0 { 0.0 } else { 100.0 };
                request.stop = has_stop.then_some(vec![7, 8]);
                (when, request)
            })
            .collect();
        let found = run(&steps, most, &requests);
        for (number, (_, request)) in requests.iter().enumerate() {
            prop_assert_eq!(&found[&number], &expected(request, &steps.limits));
        }
    }
}
