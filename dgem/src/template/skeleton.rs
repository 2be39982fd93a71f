//! What `dgem template new` writes for a decision: one question of each type, everything that a policy usually needs, and nothing else.

/// A template that passes the check as it stands.
pub const SKELETON: &str = r#"{# dgem: {
  "description": "Say in one line what this policy decides about",
  "required": ["text"],
  "sample": {"text": "A value that shows the policy at work"}
} #}
{
  "schema": {
    "instructions": "Say who decides, and by which rules.",
    "questions": [
      {
        "id": "relevant",
        "type": "boolean",
        "instructions": "Is the text about this subject?",
        "criteria": {"true": "what counts as yes", "false": "what counts as no"}
      },
      {
        "id": "kind",
        "type": "choice",
        "instructions": "What kind of text is it?",
        "options": [
          {"name": "request", "description": "somebody wants something"},
          {"name": "report", "description": "somebody tells something"},
          {"name": "other", "description": "neither of both"}
        ]
      },
      {
        "id": "importance",
        "type": "score",
        "instructions": "How important is it?",
        "levels": ["low", "medium", "high"]
      }
    ],
    "samples": {{ samples | or_default(value=1) | int_or_auto }}
  },
  "state": {"text": {{ text | json_encode }}}
}
"#;

/// The same for a text that `dgem ask -t` sends.
pub const TEXT_SKELETON: &str = r#"{# dgem: {
  "description": "Say in one line what this text asks for",
  "required": ["text"],
  "sample": {"text": "A value that shows the template at work"}
} #}
Summarise the following text in {{ length | or_default(value="two sentences") }}.

{{ text }}
"#;
