package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/manual"
)

func skillsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skills",
		Short: "The skills of a deployment, written for agents and for people",
		Long: `Skills are npukit's knowledge of bringing up a model: an overview, eight phases, three
optimisations, and three kinds of failure. Each has a SKILL.md in the open Agent Skills
format (agentskills.io), which agents load on demand and people can read.`,
		Example: `  npukit skills list
  npukit skills show debug-bo-corruption
  npukit skills export .agents/skills
  npukit skills promote work lessons`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown subcommand %q: use list, show, export or promote", args[0])
			}
			return fmt.Errorf("missing subcommand: use list, show, export or promote")
		},
		RunE: func(*cobra.Command, []string) error { return nil }, // Args returns an error in every case
	}
	cmd.AddCommand(skillsListCommand(a), skillsShowCommand(a), skillsExportCommand(a), skillsPromoteCommand(a))
	return cmd
}

func skillsListCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all skills and when to use them",
		Args:  arguments(),
		RunE: a.action(func(context.Context, *cobra.Command, []string) error {
			list := manual.All()
			for i := range list {
				list[i].Body = "" // npukit skills show prints it
			}
			if asJSON {
				return output.JSON(a.out, list)
			}
			for _, m := range list {
				if _, err := fmt.Fprintf(a.out, "%s\n%s\n\n", m.Name, wrapped(m.Description, 100, "  ")); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

// wrapped breaks text into lines of at most width characters.
func wrapped(text string, width int, indent string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, indent+line)
			line = ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return strings.Join(append(lines, indent+line), "\n")
}

func skillsShowCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Print the SKILL.md of a skill",
		Args:  arguments("NAME"),
		RunE: a.action(func(_ context.Context, _ *cobra.Command, args []string) error {
			m, err := manual.Find(args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return output.JSON(a.out, m)
			}
			_, err = io.WriteString(a.out, m.Text)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func skillsExportCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export DIR",
		Short: "Write all skills into folders of DIR, where an agent finds them",
		Long: `Export writes NAME/SKILL.md for every skill into DIR, which is created if needed. It
stops at a file with other content and leaves that file unchanged.`,
		Args: arguments("DIR"),
		RunE: a.action(func(_ context.Context, _ *cobra.Command, args []string) error {
			list := manual.All()
			if err := manual.Export(args[0], list); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.out, "%s in %s\n", output.Count(len(list), "skill"), args[0])
			return err
		}),
	}
}

func skillsPromoteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "promote W DIR",
		Short: "Make lessons of what the deployment in folder W has learnt",
		Long: `Promote writes the lessons of a deployment that has passed all phases up to finalise into
folders of DIR, each with a SKILL.md: remedies for failures, and the changes that made
the plan faster. npukit deploy --lessons DIR tries these first; gates still decide.
Lessons that DIR has already are left unchanged.`,
		Args: arguments("W", "DIR"),
		RunE: a.action(func(_ context.Context, _ *cobra.Command, args []string) error {
			learned, written, err := skill.PromoteLessons(args[0], args[1])
			if err != nil {
				return err
			}
			if len(learned) == 0 {
				return fmt.Errorf("the deployment in %s has no verified lesson: it must have passed phase "+
					"finalise with a changed plan", args[0])
			}
			_, err = fmt.Fprintf(a.out, "%s, %d new in %s\n",
				output.Count(len(learned), "lesson"), len(written), args[1])
			return err
		}),
	}
}
