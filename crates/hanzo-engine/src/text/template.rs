//! Chat templates: messages to the prompt that the model was trained on.
//!
//! Templates are Jinja2, written for Python's `jinja2` as Hugging Face's `transformers` sets it up; the same is set up
//! here over `minijinja`: trimmed blocks, loop controls, Python's methods, `tojson` as `json.dumps` writes it,
//! `raise_exception`, `strftime_now`. `{% generation %}` only marks text and is taken as a plain block.
//!
//! Templates come with the model file and are hostile: fuel bounds their time and memory, nesting and output are capped,
//! and they reach nothing but their inputs.

use std::{io, path::Path, time::SystemTime};

use hanzo_ml::file::Metadata;
use minijinja::{Environment, ErrorKind, Value, syntax::SyntaxConfig, value::Kwargs};
use serde_json::{Map, Value as Json};

use super::python;
use crate::{Error, Result};

/// Steps, and units of 64 bytes, that a rendering may use. The longest real template on a conversation of 1 MB takes
/// less than a tenth of it.
const FUEL: u64 = 4_000_000;
const OUTPUT_BYTES_MAX: usize = 64 << 20;
const SOURCE_BYTES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 400;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Names that the caller's extra variables must not replace.
const RESERVED: &[&str] = &[
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "raise_exception",
    "strftime_now",
    "namespace",
    "dict",
    "range",
];

/// A compiled template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    has_tool_use: bool,
    source: String,
}

/// What a template is rendered with, besides the messages.
#[derive(Clone, Debug)]
pub struct RenderOptions<'a> {
    /// End the prompt where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Tool definitions, a JSON array.
    pub tools: Option<&'a Json>,
    /// Documents to answer from, a JSON array.
    pub documents: Option<&'a Json>,
    /// Text of the beginning-of-sequence token.
    pub bos_token: Option<&'a str>,
    /// Text of the end-of-sequence token.
    pub eos_token: Option<&'a str>,
    /// More variables (`enable_thinking`, …); they may not replace those above.
    pub extra: Option<&'a Map<String, Json>>,
    /// The time that `strftime_now` gives, in UTC.
    pub now: SystemTime,
}

impl Default for RenderOptions<'_> {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            tools: None,
            documents: None,
            bos_token: None,
            eos_token: None,
            extra: None,
            now: SystemTime::now(),
        }
    }
}

impl ChatTemplate {
    /// Compiles a template; `origin` is the file or key that errors name.
    ///
    /// # Errors
    /// If the source is not a template.
    pub fn new(source: &str, origin: &str) -> Result<Self> {
        let mut this = Self { environment: environment(), has_tool_use: false, source: source.to_owned() };
        this.add(DEFAULT, source, origin)?;
        Ok(this)
    }

    fn add(&mut self, name: &'static str, source: &str, origin: &str) -> Result<()> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(Error::template(format!("{origin}: more than {SOURCE_BYTES_MAX} bytes")));
        }
        let source = python::strip_generation(source);
        let added = self.environment.add_template_owned(name, source);
        added.map_err(|e| Error::template(format!("{origin}: {}", describe(&e))))
    }

    fn with_tool_use(mut self, source: &str, origin: &str) -> Result<Self> {
        self.add(TOOL_USE, source, origin)?;
        self.has_tool_use = true;
        Ok(self)
    }

    /// The template of a GGUF file, `None` if it has none.
    ///
    /// # Errors
    /// If the key is no string or the source is not a template.
    pub fn from_gguf(metadata: &Metadata) -> Result<Option<Self>> {
        const KEY: &str = "tokenizer.chat_template";
        const TOOL_KEY: &str = "tokenizer.chat_template.tool_use";
        let Some(source) = metadata.str(KEY)? else { return Ok(None) };
        let template = Self::new(source, KEY)?;
        match metadata.str(TOOL_KEY)? {
            Some(tools) => template.with_tool_use(tools, TOOL_KEY).map(Some),
            None => Ok(Some(template)),
        }
    }

    /// The template of a model folder: `chat_template.jinja`, else the `chat_template` of `tokenizer_config.json` (a
    /// string, or a list of named ones); `None` if it has none.
    ///
    /// # Errors
    /// If a file cannot be read or holds no template.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>> {
        let file = folder.join("chat_template.jinja");
        if file.exists() {
            let source = read(&file, SOURCE_BYTES_MAX)?;
            return Self::new(&source, &file.display().to_string()).map(Some);
        }
        let file = folder.join("tokenizer_config.json");
        if !file.exists() {
            return Ok(None);
        }
        let origin = file.display().to_string();
        let config: Json = serde_json::from_str(&read(&file, 64 << 20)?)
            .map_err(|e| Error::template(format!("{origin}: {e}")))?;
        match &config["chat_template"] {
            Json::String(source) => Self::new(source, &origin).map(Some),
            Json::Array(named) => {
                let find = |name: &str| {
                    named
                        .iter()
                        .find(|t| t["name"].as_str() == Some(name))
                        .and_then(|t| t["template"].as_str())
                };
                let Some(source) = find(DEFAULT) else {
                    return Err(Error::template(format!("{origin}: no chat_template is named default")));
                };
                let template = Self::new(source, &origin)?;
                match find(TOOL_USE) {
                    Some(tools) => template.with_tool_use(tools, &origin).map(Some),
                    None => Ok(Some(template)),
                }
            }
            Json::Null => Ok(None),
            _ => Err(Error::template(format!("{origin}: chat_template is neither a string nor a list"))),
        }
    }

    /// The source of the (default) template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders the prompt of a conversation.
    ///
    /// `messages`: a JSON array of objects with `role` and `content`. Keys with null are left out, and a message's
    /// reasoning is found under each name that templates use.
    ///
    /// # Errors
    /// If the template refuses the conversation (its own message is given), fails, or exceeds a limit.
    pub fn render(&self, messages: &Json, options: &RenderOptions<'_>) -> Result<String> {
        let context = context(messages, options)?;
        let tool_use = self.has_tool_use && options.tools.is_some();
        let name = if tool_use { TOOL_USE } else { DEFAULT };
        let template = self.environment.get_template(name).map_err(|e| Error::template(describe(&e)))?;
        let mut output = Capped(vec![]);
        let rendered = template.render_captured_to(context, &mut output);
        rendered.map_err(|e| Error::template(describe(&e)))?;
        String::from_utf8(output.0).map_err(|_| Error::template("the output is no UTF-8"))
    }
}

fn read(file: &Path, bytes_max: usize) -> Result<String> {
    let bad = |e: io::Error| Error::template(format!("{}: {e}", file.display()));
    if std::fs::metadata(file).map_err(bad)?.len() > bytes_max as u64 {
        return Err(Error::template(format!("{}: more than {bytes_max} bytes", file.display())));
    }
    std::fs::read_to_string(file).map_err(bad)
}

/// A writer that refuses to grow without end.
struct Capped(Vec<u8>);

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > OUTPUT_BYTES_MAX {
            return Err(io::Error::other(format!("the output exceeds {OUTPUT_BYTES_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn describe(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    if let Ok(syntax) = syntax.trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(DEPTH_MAX);
    env.set_unknown_method_callback(python::method);
    env.set_formatter(python::format);
    env.add_filter("tojson", tojson);
    env.add_filter("string", python::to_string);
    env.add_filter("wordcount", |text: &str| text.split_whitespace().count());
    env.add_test("iterable", python::is_iterable);
    env.add_function("raise_exception", |message: &Value| -> std::result::Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message.to_string()))
    });
    env
}

#[expect(clippy::needless_pass_by_value, reason = "the form of a filter")]
fn tojson(value: &Value, args: Kwargs) -> std::result::Result<Value, minijinja::Error> {
    let style = python::JsonStyle {
        indent: args.get::<Option<usize>>("indent")?,
        ensure_ascii: args.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: args.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        separators: args.get::<Option<Vec<String>>>("separators")?,
    };
    args.assert_all_used()?;
    python::json(value, &style).map(Value::from)
}

fn context(messages: &Json, options: &RenderOptions<'_>) -> Result<Value> {
    let Json::Array(list) = messages else {
        return Err(Error::request("messages is no JSON array"));
    };
    let mut vars: Vec<(String, Value)> = vec![];
    for (name, value) in options.extra.into_iter().flatten() {
        if RESERVED.contains(&name.as_str()) {
            return Err(Error::request(format!("chat template variables may not set {name:?}")));
        }
        vars.push((name.clone(), python::value(value)));
    }
    let list = list.iter().map(normalise).collect::<Result<Vec<Json>>>()?;
    let now = options.now;
    let mut set = |name: &str, value: Value| vars.push((name.to_owned(), value));
    set("messages", list.iter().map(python::value).collect::<Vec<_>>().into());
    set("tools", options.tools.map(python::value).into());
    set("documents", options.documents.map(python::value).into());
    set("add_generation_prompt", options.add_generation_prompt.into());
    set("strftime_now", Value::from_function(move |format: &str| python::strftime(format, now)));
    for (name, token) in [("bos_token", options.bos_token), ("eos_token", options.eos_token)] {
        if let Some(token) = token {
            set(name, token.into());
        }
    }
    Ok(Value::from_pairs(vars))
}

/// A message without nulls, its reasoning under the two names that templates read.
fn normalise(message: &Json) -> Result<Json> {
    let Json::Object(fields) = message else {
        return Err(Error::request("a message is no JSON object"));
    };
    let mut out: Map<String, Json> =
        fields.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let reasoning = ["reasoning_content", "thinking", "reasoning"].iter().find_map(|k| out.get(*k)).cloned();
    if let Some(reasoning) = reasoning {
        out.entry("thinking").or_insert_with(|| reasoning.clone());
        out.insert("reasoning_content".into(), reasoning);
    }
    Ok(Json::Object(out))
}
