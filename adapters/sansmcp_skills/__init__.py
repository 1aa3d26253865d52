"""The frontmatter of skills, which is YAML, and folders of them.

``Tools.skills`` of sansmcp_tools serves folders, and the clients of all adapters verify what they
read: both use this package. It needs the extra ``skills``, which brings PyYAML.

Source: the extension io.modelcontextprotocol/skills; https://agentskills.io/specification.
"""

from sansmcp import _lazy

with _lazy.needing(__name__, "skills", "yaml"):
    from ._frontmatter import parse_frontmatter

from ._folder import FolderFile, FolderSkill, SkillError, SkillFolder, check_name, quoted

__all__ = [
    "FolderFile",
    "FolderSkill",
    "SkillError",
    "SkillFolder",
    "check_name",
    "parse_frontmatter",
    "quoted",
]
