//! Which token comes next.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::error::GenerateError;

/// How tokens are chosen, as in [transformers](https://huggingface.co/docs/transformers/main_classes/text_generation).
///
/// The steps are applied in this order: repetition penalty, temperature, `top_k`, `top_p`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits: 0 chooses the token with the largest one, always the same.
    pub temperature: f32,
    /// Only as many tokens as this, those with the largest logits, may be chosen; all that equal the last of them
    /// too.
    pub top_k: Option<usize>,
    /// Only the fewest tokens whose probabilities add up to this, above 0 and at most 1, may be chosen.
    pub top_p: Option<f32>,
    /// Positive logits of tokens that are in the text already are divided by this, others multiplied: above 1 for
    /// fewer repetitions.
    pub repetition_penalty: f32,
    /// Equal seeds choose equal tokens, on every machine that computes equal logits.
    pub seed: u64,
}

impl Default for Sampling {
    /// The most probable token.
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: None,
            top_p: None,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Checks the values.
    ///
    /// # Errors
    /// If one of them is out of its range.
    pub fn check(&self) -> Result<(), GenerateError> {
        let wrong = |name, value: String, expected| {
            Err(GenerateError::Setting {
                name,
                value,
                expected,
            })
        };
        let Self {
            temperature,
            top_k,
            top_p,
            repetition_penalty,
            ..
        } = *self;
        if !temperature.is_finite() || temperature < 0.0 {
            return wrong("temperature", temperature.to_string(), "a number from 0 on");
        }
        if top_k == Some(0) {
            return wrong("top_k", "0".to_owned(), "a number of tokens from 1 on");
        }
        if let Some(top_p) = top_p
            && !(top_p > 0.0 && top_p <= 1.0)
        {
            return wrong("top_p", top_p.to_string(), "a number above 0, at most 1");
        }
        if !repetition_penalty.is_finite() || repetition_penalty <= 0.0 {
            let expected = "a number above 0";
            return wrong(
                "repetition_penalty",
                repetition_penalty.to_string(),
                expected,
            );
        }
        Ok(())
    }
}

/// A token that may come next, and how probable it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub token: u32,
    /// Its probability among the candidates.
    pub probability: f32,
}

/// Chooses the tokens of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(sampling.seed),
            sampling,
        }
    }

    /// The next token after `text`.
    ///
    /// # Errors
    /// If a logit is not a number, or none is finite.
    pub(crate) fn choose(&mut self, logits: &[f32], text: &[u32]) -> Result<u32, GenerateError> {
        let candidates = candidates(&self.sampling, logits, text)?;
        if let [only] = &candidates[..] {
            return Ok(only.token);
        }
        // 53 bits, as many as an f64 holds, in [0, 1).
        let drawn = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut below = 0.0;
        let chosen = candidates.iter().find(|own| {
            below += f64::from(own.probability);
            drawn < below
        });
        // Probabilities may add up to a little less than 1.
        let chosen = chosen.or(candidates.last());
        chosen.map(|own| own.token).ok_or(GenerateError::Logits)
    }
}

/// The tokens that may come after `text`, the most probable one first.
///
/// # Errors
/// If a setting is out of its range, a logit is not a number, or none is finite.
pub fn candidates(
    sampling: &Sampling,
    logits: &[f32],
    text: &[u32],
) -> Result<Vec<Candidate>, GenerateError> {
    sampling.check()?;
    let mut penalised;
    let logits = match sampling.repetition_penalty {
        1.0 => logits,
        penalty => {
            penalised = logits.to_vec();
            penalise(&mut penalised, logits, text, penalty);
            &penalised
        }
    };
    let (first, largest) = largest(logits)?;
    if sampling.temperature == 0.0 {
        return Ok(vec![Candidate {
            token: first,
            probability: 1.0,
        }]);
    }
    let least = match sampling.top_k {
        Some(count) if count < logits.len() => nth_largest(logits, count),
        _ => f32::NEG_INFINITY,
    };
    let mut found: Vec<Candidate> = (0..)
        .zip(logits)
        .filter(|&(_, &logit)| logit >= least)
        .map(|(token, &logit)| Candidate {
            token,
            probability: ((logit - largest) / sampling.temperature).exp(),
        })
        .collect();
    scale(&mut found);
    if let Some(top_p) = sampling.top_p.filter(|&top_p| top_p < 1.0) {
        // Those below are among the ones that are left out: together they have no more than 1 - top_p.
        let rare = (1.0 - top_p) / found.len() as f32;
        let probabilities = found.iter().map(|own| own.probability);
        let most = probabilities.fold(0.0, f32::max);
        found.retain(|own| own.probability > rare || own.probability == most);
    }
    found.sort_by(|one, other| other.probability.total_cmp(&one.probability));
    if let Some(top_p) = sampling.top_p {
        let mut above = 0.0_f64;
        let kept = found.iter().take_while(|own| {
            let is_kept = above < f64::from(top_p);
            above += f64::from(own.probability);
            is_kept
        });
        let kept = kept.count().max(1);
        found.truncate(kept);
        scale(&mut found);
    }
    Ok(found)
}

fn penalise(logits: &mut [f32], before: &[f32], text: &[u32], penalty: f32) {
    for &token in text {
        let token = token as usize;
        if let (Some(logit), Some(&own)) = (logits.get_mut(token), before.get(token)) {
            *logit = if own < 0.0 {
                own * penalty
            } else {
                own / penalty
            };
        }
    }
}

/// The first token with the largest logit, and this.
fn largest(logits: &[f32]) -> Result<(u32, f32), GenerateError> {
    let mut found = (0, f32::NEG_INFINITY);
    for (token, &logit) in (0..).zip(logits) {
        if logit.is_nan() {
            return Err(GenerateError::Logits);
        }
        if logit > found.1 {
            found = (token, logit);
        }
    }
    match found.1.is_finite() {
        true => Ok(found),
        false => Err(GenerateError::Logits),
    }
}

fn nth_largest(logits: &[f32], count: usize) -> f32 {
    let mut ordered = logits.to_vec();
    let (_, nth, _) = ordered.select_nth_unstable_by(count - 1, |one, other| other.total_cmp(one));
    *nth
}

/// Makes the probabilities add up to 1.
fn scale(candidates: &mut [Candidate]) {
    let sum: f64 = candidates
        .iter()
        .map(|own| f64::from(own.probability))
        .sum();
    for own in candidates {
        own.probability = (f64::from(own.probability) / sum) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampling(temperature: f32, top_k: Option<usize>, top_p: Option<f32>) -> Sampling {
        Sampling {
            temperature,
            top_k,
            top_p,
            ..Sampling::default()
        }
    }

    fn tokens(sampling: &Sampling, logits: &[f32]) -> Vec<u32> {
        let found = candidates(sampling, logits, &[]).unwrap();
        let sum: f32 = found.iter().map(|own| own.probability).sum();
        assert!((sum - 1.0).abs() < 1e-6);
        found.iter().map(|own| own.token).collect()
    }

    #[test]
    fn temperature_zero_takes_the_first_of_the_largest() {
        let mut sampler = Sampler::new(Sampling::default());
        assert_eq!(sampler.choose(&[1.0, 3.0, 2.0, 3.0], &[]).unwrap(), 1);
        let cut = [f32::NEG_INFINITY, -5.0];
        assert_eq!(sampler.choose(&cut, &[]).unwrap(), 1);
    }

    #[test]
    fn the_largest_logits_are_kept_with_their_equals() {
        let logits = [0.0, 2.0, 1.0, 1.0, -1.0];
        assert_eq!(tokens(&sampling(1.0, Some(1), None), &logits), [1]);
        assert_eq!(tokens(&sampling(1.0, Some(2), None), &logits), [1, 2, 3]);
        assert_eq!(tokens(&sampling(1.0, Some(9), None), &logits).len(), 5);
    }

    #[test]
    fn the_fewest_tokens_that_are_probable_enough_are_kept() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let logits = [8.0_f32, 4.0, 2.0, 2.0].map(f32::ln);
        assert_eq!(tokens(&sampling(1.0, None, Some(0.4)), &logits), [0]);
        assert_eq!(tokens(&sampling(1.0, None, Some(0.6)), &logits), [0, 1]);
        assert_eq!(tokens(&sampling(1.0, None, Some(0.8)), &logits), [0, 1, 2]);
        assert_eq!(tokens(&sampling(1.0, None, Some(1.0)), &logits).len(), 4);
        assert_eq!(tokens(&sampling(1.0, None, Some(1e-9)), &logits), [0]);
        assert_eq!(tokens(&sampling(1.0, Some(1), Some(1e-9)), &logits), [0]);
        assert_eq!(tokens(&sampling(1.0, None, Some(1e-9)), &[1.0; 3]), [0]);
    }

    #[test]
    fn repetition_is_made_less_probable() {
        let own = Sampling {
            temperature: 1.0,
            repetition_penalty: 2.0,
            ..Sampling::default()
        };
        let found = candidates(&own, &[4.0, -1.0, 1.0], &[0, 1, 0, 7]).unwrap();
        let logit = |token: u32| {
            let own = found.iter().find(|own| own.token == token).unwrap();
            own.probability.ln()
        };
        assert!((logit(0) - logit(2) - 1.0).abs() < 1e-5);
        assert!((logit(2) - logit(1) - 3.0).abs() < 1e-5);
    }

    #[test]
    fn tokens_are_as_frequent_as_they_are_probable() {
        let mut sampler = Sampler::new(sampling(1.0, None, None));
        let logits = [5.0_f32, 3.0, 2.0].map(f32::ln);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            counts[sampler.choose(&logits, &[]).unwrap() as usize] += 1;
        }
        for (count, expected) in counts.into_iter().zip([5000_i32, 3000, 2000]) {
            assert!((count - expected).abs() < 200, "{counts:?}");
        }
    }

    #[test]
    fn equal_seeds_choose_equal_tokens() {
        let logits: Vec<f32> = (0..50).map(|token| (token as f32).sin()).collect();
        let chosen = |seed| {
            let mut sampler = Sampler::new(Sampling {
                seed,
                ..sampling(1.0, None, None)
            });
            let next = |_| sampler.choose(&logits, &[]).unwrap();
            (0..20).map(next).collect::<Vec<u32>>()
        };
        assert_eq!(chosen(7), chosen(7));
        assert_ne!(chosen(7), chosen(8));
    }

    #[test]
    fn settings_and_logits_that_make_no_sense_are_errors() {
        for wrong in [
            sampling(-1.0, None, None),
            sampling(f32::NAN, None, None),
            sampling(1.0, Some(0), None),
            sampling(1.0, None, Some(0.0)),
            sampling(1.0, None, Some(1.5)),
            Sampling {
                repetition_penalty: 0.0,
                ..Sampling::default()
            },
        ] {
            assert!(candidates(&wrong, &[1.0, 2.0], &[]).is_err(), "{wrong:?}");
        }
        for wrong in [
            &[][..],
            &[f32::NAN, 1.0],
            &[f32::NEG_INFINITY],
            &[f32::INFINITY, 1.0],
        ] {
            for temperature in [0.0, 1.0] {
                assert!(candidates(&sampling(temperature, None, None), wrong, &[]).is_err());
            }
        }
    }
}
