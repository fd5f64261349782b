//! What was said so far, and its file: a JSON list of messages with `role` and `content`, as `hanzo template --messages`
//! reads it. Invariant: questions and answers alternate, which is what chat templates want.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value as Json, json};

use crate::input;

/// A conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transcript {
    /// What the model is told about its task.
    pub(super) system: Option<String>,
    /// Questions with their answers.
    pub(super) turns: Vec<(String, String)>,
}

impl Transcript {
    /// The messages, and a question that has no answer yet.
    pub(super) fn messages(&self, question: Option<&str>) -> Json {
        let message = |role: &str, content: &str| json!({ "role": role, "content": content });
        let mut messages: Vec<Json> = self.system.iter().map(|text| message("system", text)).collect();
        for (question, answer) in &self.turns {
            messages.extend([message("user", question), message("assistant", answer)]);
        }
        messages.extend(question.map(|text| message("user", text)));
        messages.into()
    }

    /// Reads a file that [`Self::save`] or somebody else wrote.
    ///
    /// # Errors
    /// If it cannot be read or is no conversation.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = input::file(path).map_err(|e| e.to_string())?;
        let json = serde_json::from_str(&text).map_err(|e| format!("{name}: {e}"))?;
        Self::parse(&json).map_err(|why| format!("{name}: {why}"))
    }

    /// Writes a file: the whole of it or nothing. Only a conversation is written over.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn save(&self, path: &Path) -> Result<(), String> {
        let name = path.display();
        if path.exists() && Self::load(path).is_err() {
            return Err(format!("{name} is there and is no conversation; it is left as it is"));
        }
        let text = format!("{:#}\n", self.messages(None));
        let part = beside(path).ok_or_else(|| format!("{name} is not the name of a file"))?;
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
        written.map_err(|e| {
            // It may not even exist.
            drop(fs::remove_file(&part));
            format!("{name}: {e}")
        })
    }

    fn parse(json: &Json) -> Result<Self, String> {
        let messages = json.as_array().ok_or("a conversation is a JSON list of messages")?;
        let mut transcript = Self::default();
        let mut question: Option<&str> = None;
        for (i, message) in messages.iter().enumerate() {
            let at = format!("message {}", i + 1);
            let (role, content) = role_and_content(message).map_err(|why| format!("{at} {why}"))?;
            match (role, question) {
                ("system", None) if i == 0 => transcript.system = Some(content.to_owned()),
                ("user", None) => question = Some(content),
                ("assistant", Some(asked)) => {
                    transcript.turns.push((asked.to_owned(), content.to_owned()));
                    question = None;
                }
                ("system" | "user" | "assistant", _) => {
                    return Err(format!(
                        "{at} has the role {role:?} out of turn: a system message may come first, then user and \
                         assistant alternate"
                    ));
                }
                _ => return Err(format!("{at} has the role {role:?}; there are system, user and assistant")),
            }
        }
        match question {
            None => Ok(transcript),
            Some(_) => Err("the last message is a question without an answer".to_owned()),
        }
    }
}

/// The two fields that a message has, and no other.
fn role_and_content(message: &Json) -> Result<(&str, &str), String> {
    let object = message.as_object().ok_or("is no object")?;
    if let Some(other) = object.keys().find(|key| !["role", "content"].contains(&key.as_str())) {
        return Err(format!("has the field {other:?}, which a conversation cannot keep"));
    }
    let text =
        |key: &str| object.get(key).and_then(Json::as_str).ok_or_else(|| format!("has no text {key:?}"));
    Ok((text("role")?, text("content")?))
}

/// A name in the same folder, so that renaming is atomic.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(format!(".{}.part", std::process::id()));
    Some(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript {
        let turn = |question: &str, answer: &str| (question.to_owned(), answer.to_owned());
        Transcript {
            system: Some("Be \"brief\".".to_owned()),
            turns: vec![turn("a\nb", "<think>é</think>\u{1b}😀"), turn("", "")],
        }
    }

    #[test]
    fn a_conversation_survives_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat.json");
        for transcript in [transcript(), Transcript::default()] {
            transcript.save(&path).unwrap();
            assert_eq!(Transcript::load(&path), Ok(transcript));
        }
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_file_is_a_list_of_messages() {
        let messages = transcript().messages(Some("c"));
        let roles: Vec<&str> =
            messages.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "user"]);
        assert_eq!(messages[1], json!({ "role": "user", "content": "a\nb" }));
        assert_eq!(messages[5]["content"], "c");
    }

    #[test]
    fn other_files_are_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.txt");
        fs::write(&path, "my notes").unwrap();
        assert!(transcript().save(&path).unwrap_err().contains("is no conversation"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "my notes");
        assert!(transcript().save(dir.path()).is_err());
        assert!(transcript().save(&dir.path().join("absent/chat.json")).is_err());
        assert!(transcript().save(Path::new("..")).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn hostile_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("chat.json");
        let deep = "[".repeat(100_000);
        for (text, wanted) in [
            ("", "EOF"),
            ("[", "EOF"),
            (&deep, "recursion"),
            ("{}", "JSON list"),
            ("3", "JSON list"),
            ("[3]", "message 1 is no object"),
            (r#"[{"role": "user"}]"#, "message 1 has no text \"content\""),
            (r#"[{"content": "a"}]"#, "message 1 has no text \"role\""),
            (r#"[{"role": "user", "content": ["a"]}]"#, "no text \"content\""),
            (r#"[{"role": "user", "content": "a", "name": "x"}]"#, "the field \"name\""),
            (r#"[{"role": "tool", "content": "a"}]"#, "the role \"tool\"; there are"),
            (r#"[{"role": "user", "content": "a"}]"#, "without an answer"),
            (
                r#"[{"role": "assistant", "content": "a"}]"#,
                "message 1 has the role \"assistant\" out of turn",
            ),
            (r#"[{"role": "system", "content": "a"}, {"role": "system", "content": "a"}]"#, "message 2"),
            (r#"[{"role": "user", "content": "a"}, {"role": "user", "content": "a"}]"#, "message 2"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Transcript::load(&path).unwrap_err();
            assert!(error.contains(wanted) && error.contains("chat.json"), "{error}");
        }
        fs::write(&path, b"\"\xff\"").unwrap();
        assert!(Transcript::load(&path).is_err());
        assert!(Transcript::load(dir.path()).is_err());
        assert!(Transcript::load(&dir.path().join("absent")).unwrap_err().contains("absent"));
    }
}
