//! The options of sampling, each once: name, meaning, range, default, and its names in model files.
//!
//! The command line, the values that a model file recommends, the check of a request and the list of effective values walk
//! this table. Every value can be written as text and read again.

use hanzo_ml::file::Value as MetadataValue;
use serde_json::{Number, Value};

use super::{SAMPLERS, SamplerKind, SamplingParams};

/// Samplers in an order, biases and breakers that anyone may give.
const N_ITEMS_MAX: usize = 1024;
/// The longest sequence breaker, bytes.
const BREAKER_BYTES_MAX: usize = 256;
/// A bound for penalties and their like, far beyond use; keeps sums finite.
const LARGE: f32 = 1e6;

/// One option of sampling.
pub struct SamplingOption {
    /// Name, as the command line has it.
    pub name: &'static str,
    /// Another name on the command line.
    pub alias: Option<&'static str>,
    /// Short name on the command line.
    pub short: Option<char>,
    /// What stands for its value in help.
    pub placeholder: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Its key in a GGUF file.
    pub gguf_key: Option<&'static str>,
    /// Its key in a generation_config.json.
    pub config_key: Option<&'static str>,
    field: Field,
}

enum Field {
    /// A number and its range.
    Real(fn(&mut SamplingParams) -> &mut f32, f32, f32),
    /// A whole number, the largest, and what -1 means.
    Count(fn(&mut SamplingParams) -> &mut usize, usize, Option<usize>),
    Seed,
    Order,
    Bias,
    Breakers,
}

const NONE: SamplingOption = SamplingOption {
    name: "",
    alias: None,
    short: None,
    placeholder: "N",
    doc: "",
    gguf_key: None,
    config_key: None,
    field: Field::Seed,
};

/// Every option, in the order of the help.
pub static OPTIONS: &[SamplingOption] = &[
    SamplingOption {
        name: "temp",
        alias: Some("temperature"),
        doc: "Temperature; 0 or less is greedy: the most likely token each time. llama.cpp's default is 0.8",
        gguf_key: Some("general.sampling.temp"),
        config_key: Some("temperature"),
        field: Field::Real(|p| &mut p.temp, -LARGE, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "top-k",
        doc: "Keep the N most likely tokens; 0 is all",
        gguf_key: Some("general.sampling.top_k"),
        config_key: Some("top_k"),
        field: Field::Count(|p| &mut p.top_k, i32::MAX as usize, Some(0)),
        ..NONE
    },
    SamplingOption {
        name: "top-p",
        placeholder: "P",
        doc: "Keep the most likely tokens whose probabilities reach P together; 1 is all",
        gguf_key: Some("general.sampling.top_p"),
        config_key: Some("top_p"),
        field: Field::Real(|p| &mut p.top_p, 0.0, 1.0),
        ..NONE
    },
    SamplingOption {
        name: "min-p",
        placeholder: "P",
        doc: "Keep tokens at least P times as likely as the most likely one; 0 is all",
        gguf_key: Some("general.sampling.min_p"),
        config_key: Some("min_p"),
        field: Field::Real(|p| &mut p.min_p, 0.0, 1.0),
        ..NONE
    },
    SamplingOption {
        name: "typical-p",
        alias: Some("typical"),
        placeholder: "P",
        doc: "Keep the tokens whose information is nearest to the entropy, of probability P together; 1 is all",
        config_key: Some("typical_p"),
        field: Field::Real(|p| &mut p.typical_p, 0.0, 1.0),
        ..NONE
    },
    SamplingOption {
        name: "top-n-sigma",
        alias: Some("top-nsigma"),
        doc: "Keep logits within N standard deviations of the largest; 0 or less is all",
        field: Field::Real(|p| &mut p.top_n_sigma, -1.0, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "repeat-penalty",
        doc: "Divide positive logits of recent tokens by N, multiply negative ones; 1 is off",
        gguf_key: Some("general.sampling.penalty_repeat"),
        config_key: Some("repetition_penalty"),
        field: Field::Real(|p| &mut p.repeat_penalty, 1.0 / LARGE, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "repeat-last-n",
        doc: "How many tokens, prompt included, are recent for the three penalties; -1 is all",
        gguf_key: Some("general.sampling.penalty_last_n"),
        field: Field::Count(|p| &mut p.repeat_last_n, i32::MAX as usize, Some(usize::MAX)),
        ..NONE
    },
    SamplingOption {
        name: "presence-penalty",
        doc: "Take N from the logits of recent tokens",
        field: Field::Real(|p| &mut p.presence_penalty, -LARGE, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "frequency-penalty",
        doc: "Take N from the logits of recent tokens for each time they occur",
        field: Field::Real(|p| &mut p.frequency_penalty, -LARGE, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "dry-multiplier",
        doc: "Take N * base^(length - allowed length) from what extends a repetition (DRY); 0 is off",
        field: Field::Real(|p| &mut p.dry_multiplier, 0.0, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "dry-base",
        doc: "Base of DRY",
        field: Field::Real(|p| &mut p.dry_base, 1.0, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "dry-allowed-length",
        doc: "Tokens of a repetition that DRY allows",
        field: Field::Count(|p| &mut p.dry_allowed_length, i32::MAX as usize, None),
        ..NONE
    },
    SamplingOption {
        name: "dry-penalty-last-n",
        doc: "How many tokens, prompt included, DRY looks back on; -1 is all",
        field: Field::Count(|p| &mut p.dry_penalty_last_n, i32::MAX as usize, Some(usize::MAX)),
        ..NONE
    },
    SamplingOption {
        name: "dry-sequence-breaker",
        placeholder: "TEXT",
        doc: "Text that repetitions do not reach across, instead of the default ones; repeatable; 'none' is none",
        field: Field::Breakers,
        ..NONE
    },
    SamplingOption {
        name: "xtc-probability",
        placeholder: "P",
        doc: "How often to exclude top choices (XTC); 0 is never",
        gguf_key: Some("general.sampling.xtc_probability"),
        field: Field::Real(|p| &mut p.xtc_probability, 0.0, 1.0),
        ..NONE
    },
    SamplingOption {
        name: "xtc-threshold",
        placeholder: "P",
        doc: "Probability that makes a top choice, of which XTC leaves the least likely; above 0.5 is off",
        gguf_key: Some("general.sampling.xtc_threshold"),
        field: Field::Real(|p| &mut p.xtc_threshold, 0.0, 1.0),
        ..NONE
    },
    SamplingOption {
        name: "mirostat",
        doc: "Mirostat 1 or 2 in place of all samplers but bias and temperature; 0 is off",
        gguf_key: Some("general.sampling.mirostat"),
        field: Field::Count(|p| &mut p.mirostat, 2, None),
        ..NONE
    },
    SamplingOption {
        name: "mirostat-lr",
        doc: "Mirostat's learning rate",
        gguf_key: Some("general.sampling.mirostat_eta"),
        field: Field::Real(|p| &mut p.mirostat_lr, 0.0, 1000.0),
        ..NONE
    },
    SamplingOption {
        name: "mirostat-ent",
        doc: "Mirostat's target: bits of surprise",
        gguf_key: Some("general.sampling.mirostat_tau"),
        field: Field::Real(|p| &mut p.mirostat_ent, 0.0, 1000.0),
        ..NONE
    },
    SamplingOption {
        name: "dynatemp-range",
        doc: "Let the temperature follow the entropy, up to N below and above; 0 is off",
        field: Field::Real(|p| &mut p.dynatemp_range, 0.0, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "dynatemp-exp",
        doc: "Exponent from entropy to temperature",
        field: Field::Real(|p| &mut p.dynatemp_exp, 0.0, LARGE),
        ..NONE
    },
    SamplingOption {
        name: "logit-bias",
        short: Some('l'),
        placeholder: "TOKEN(+/-)BIAS",
        doc: "Add to a token's logit: 15043+1, 15043-0.5, 15043-inf (never); repeatable",
        field: Field::Bias,
        ..NONE
    },
    SamplingOption {
        name: "seed",
        short: Some('s'),
        doc: "Seed of the draws: the same seed gives the same answer; -1 is a random one",
        field: Field::Seed,
        ..NONE
    },
    SamplingOption {
        name: "samplers",
        placeholder: "ORDER",
        doc: "Samplers in their order, separated by ';' or ','",
        gguf_key: Some("general.sampling.sequence"),
        field: Field::Order,
        ..NONE
    },
];

impl SamplingOption {
    /// The option's value as a GGUF file holds it, where it is a number.
    pub(super) fn gguf_value(&self, params: &SamplingParams) -> Option<MetadataValue> {
        let mut params = params.clone();
        match self.field {
            Field::Real(field, ..) => Some(MetadataValue::F32(*field(&mut params))),
            Field::Count(field, ..) => i32::try_from(*field(&mut params)).ok().map(MetadataValue::I32),
            Field::Seed | Field::Order | Field::Bias | Field::Breakers => None,
        }
    }

    /// The option of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        OPTIONS.iter().find(|option| option.name == name)
    }

    /// Whether it may be given several times.
    pub fn repeats(&self) -> bool {
        matches!(self.field, Field::Bias | Field::Breakers)
    }

    /// Whether it has no effect while decoding is greedy.
    pub fn needs_temperature(&self) -> bool {
        const GREEDY: &[&str] =
            &["temp", "logit-bias", "repeat-", "presence-", "frequency-", "dry-", "samplers"];
        !GREEDY.iter().any(|prefix| self.name.starts_with(prefix))
    }

    /// Sets it: one text, or any number where it [`repeats`](Self::repeats).
    ///
    /// # Errors
    /// Why a text is no value of this option.
    pub fn set(&self, params: &mut SamplingParams, texts: &[String]) -> Result<(), String> {
        if texts.len() > N_ITEMS_MAX {
            return Err(format!("{} values are more than {N_ITEMS_MAX}", texts.len()));
        }
        let text = texts.last().map(String::as_str).unwrap_or_default();
        match self.field {
            Field::Real(field, min, max) => *field(params) = real(text, min, max)?,
            Field::Count(field, max, negative) => *field(params) = count(text, max, negative)?,
            Field::Seed => params.seed = seed(text)?,
            Field::Order => params.samplers = order(text)?,
            Field::Bias => params.logit_bias = texts.iter().map(|t| bias(t)).collect::<Result<_, _>>()?,
            Field::Breakers => params.dry_sequence_breakers = breakers(texts)?,
        }
        Ok(())
    }

    /// Its value as texts that [`Self::set`] reads.
    pub fn texts_of(&self, params: &SamplingParams) -> Vec<String> {
        // The table has one accessor a field, and it borrows mutably.
        let mut copy = params.clone();
        match self.field {
            Field::Real(field, ..) => vec![field(&mut copy).to_string()],
            Field::Count(field, ..) => match *field(&mut copy) {
                usize::MAX => vec!["-1".to_owned()],
                n => vec![n.to_string()],
            },
            Field::Seed => vec![copy.seed.map_or_else(|| "-1".to_owned(), |seed| seed.to_string())],
            Field::Order => vec![copy.samplers.iter().map(|kind| kind.name).collect::<Vec<_>>().join(";")],
            Field::Bias => copy.logit_bias.iter().map(|(id, bias)| format!("{id}{bias:+}")).collect(),
            Field::Breakers if copy.dry_sequence_breakers.is_empty() => vec![NO_BREAKERS.to_owned()],
            Field::Breakers => copy.dry_sequence_breakers,
        }
    }

    /// Its value: a number, a text, or a list of texts.
    pub fn value_of(&self, params: &SamplingParams) -> Value {
        let texts = self.texts_of(params);
        match self.field {
            Field::Bias => texts.into(),
            Field::Breakers => params.dry_sequence_breakers.clone().into(),
            Field::Order => params.samplers.iter().map(|kind| kind.name).collect(),
            Field::Seed => params.seed.into(),
            // Through the text, so that 0.95 stays 0.95.
            Field::Real(..) | Field::Count(..) => {
                texts[0].parse::<Number>().map_or(Value::Null, Value::Number)
            }
        }
    }
}

fn real(text: &str, min: f32, max: f32) -> Result<f32, String> {
    match text.trim().parse::<f32>() {
        // NaN is within nothing.
        Ok(x) if (min..=max).contains(&x) => Ok(x),
        Ok(x) => Err(format!("{x} is not within {min} and {max}")),
        Err(_) => Err(format!("{text:?} is not a number")),
    }
}

fn count(text: &str, max: usize, negative: Option<usize>) -> Result<usize, String> {
    let text = text.trim();
    // Files have whole numbers as 40.0 too.
    let text = text.strip_suffix(".0").unwrap_or(text);
    match (text.parse::<usize>(), negative) {
        (Ok(n), _) if n <= max => Ok(n),
        (_, Some(meaning)) if text == "-1" => Ok(meaning),
        (_, negative) => {
            let min = if negative.is_some() { -1 } else { 0 };
            Err(format!("{text:?} is not a whole number within {min} and {max}"))
        }
    }
}

fn seed(text: &str) -> Result<Option<u64>, String> {
    match text.trim() {
        "-1" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| format!("{text:?} is neither -1 nor a whole number below 2^64")),
    }
}

fn order(text: &str) -> Result<Vec<&'static SamplerKind>, String> {
    let names: Vec<&str> = text.split([';', ',']).map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.len() > N_ITEMS_MAX {
        return Err(format!("{} samplers are more than {N_ITEMS_MAX}", names.len()));
    }
    let find = |name: &str| {
        SamplerKind::find(name).ok_or_else(|| {
            let known: Vec<&str> = SAMPLERS.iter().map(|kind| kind.name).collect();
            format!("there is no sampler {name:?}; there are {}", known.join(", "))
        })
    };
    names.into_iter().map(find).collect()
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let error = || format!("{text:?} is not a token id, a sign and a number, such as 15043+1 or 15043-inf");
    let (id, signed) = text.trim().split_at(text.trim().find(['+', '-']).ok_or_else(error)?);
    let id = id.parse().map_err(|_| error())?;
    let size: f32 = signed[1..].parse().map_err(|_| error())?;
    if size.is_nan() || signed[1..].starts_with(['+', '-']) {
        return Err(error());
    }
    Ok((id, if signed.starts_with('-') { -size } else { size }))
}

/// The text that stands for no sequence breakers.
const NO_BREAKERS: &str = "none";

fn breakers(texts: &[String]) -> Result<Vec<String>, String> {
    let texts = texts.iter().filter(|text| *text != NO_BREAKERS);
    let check = |text: &String| match text.len() {
        1..=BREAKER_BYTES_MAX => Ok(text.clone()),
        n => Err(format!("a sequence breaker of {n} bytes; it may have 1 to {BREAKER_BYTES_MAX}")),
    };
    texts.map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, text: &str) -> Result<SamplingParams, String> {
        let mut params = SamplingParams::default();
        SamplingOption::find(name).unwrap().set(&mut params, &[text.to_owned()])?;
        Ok(params)
    }

    #[test]
    fn values_survive_a_trip_through_text() {
        let mut params = SamplingParams::default();
        assert_eq!(params.check(), Ok(()));
        for option in OPTIONS {
            let mut again =
                SamplingParams { samplers: vec![], dry_sequence_breakers: vec![], ..params.clone() };
            option.set(&mut again, &option.texts_of(&params)).unwrap();
            assert_eq!(option.value_of(&again), option.value_of(&params), "{}", option.name);
        }
        params.logit_bias = vec![(7, -0.25), (8, f32::NEG_INFINITY), (9, f32::INFINITY)];
        params.dry_sequence_breakers.clear();
        params.repeat_last_n = usize::MAX;
        params.seed = Some(u64::MAX);
        params.samplers.reverse();
        let mut again = SamplingParams::default();
        for option in OPTIONS {
            option.set(&mut again, &option.texts_of(&params)).unwrap();
        }
        assert_eq!(again, params);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (name, text) in [
            ("temp", "NaN"),
            ("temp", "inf"),
            ("temp", "warm"),
            ("temp", ""),
            ("top-p", "1.01"),
            ("top-p", "-0.1"),
            ("top-k", "-2"),
            ("top-k", "1.5"),
            ("top-k", "99999999999999999999"),
            ("repeat-penalty", "0"),
            ("dry-base", "0.5"),
            ("dry-allowed-length", "-1"),
            ("dry-sequence-breaker", ""),
            ("mirostat", "3"),
            ("seed", "-2"),
            ("seed", "18446744073709551616"),
            ("samplers", "top_k;top_q"),
            ("logit-bias", "5"),
            ("logit-bias", "+1"),
            ("logit-bias", "5+"),
            ("logit-bias", "5--1"),
            ("logit-bias", "5+nan"),
            ("logit-bias", "-5+1"),
        ] {
            assert!(set(name, text).is_err(), "{name} {text}");
        }
        assert!(set("samplers", "top_k;top_q").unwrap_err().contains("top_q"));
        let params = SamplingParams { top_p: f32::NAN, ..SamplingParams::default() };
        assert!(params.check().unwrap_err().contains("top-p"));
    }

    #[test]
    fn values_as_people_write_them() {
        assert_eq!(set("top-k", "-1").unwrap().top_k, 0);
        assert_eq!(set("repeat-last-n", "-1").unwrap().repeat_last_n, usize::MAX);
        assert_eq!(set("logit-bias", "15043-inf").unwrap().logit_bias, [(15043, f32::NEG_INFINITY)]);
        assert_eq!(set("logit-bias", "3+1.5").unwrap().logit_bias, [(3, 1.5)]);
        assert_eq!(set("seed", "-1").unwrap().seed, None);
        assert_eq!(set("dry-sequence-breaker", "none").unwrap().dry_sequence_breakers, [""; 0]);
        let names: Vec<&str> =
            set("samplers", "top-k; temperature,MINP").unwrap().samplers.iter().map(|k| k.name).collect();
        assert_eq!(names, ["top_k", "temperature", "min_p"]);
    }

    #[test]
    fn effective_values_are_short_numbers() {
        let effective = SamplingParams { seed: Some(3), ..SamplingParams::default() }.effective();
        assert_eq!(effective["top_p"].to_string(), "0.95");
        assert_eq!(effective["top_k"].to_string(), "40");
        assert_eq!(effective["seed"].to_string(), "3");
        assert_eq!(effective["samplers"][0], "penalties");
        assert_eq!(effective.as_object().unwrap().len(), OPTIONS.len());
    }
}
