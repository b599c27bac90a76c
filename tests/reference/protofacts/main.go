// protofacts prints how Kubernetes' built-in kinds look in protobuf: field numbers, JSON names and types, nothing else.
// The table that the API server decodes request bodies with is made by it (from tests/reference):
//
//	go run ./protofacts > ../../crates/machinery/src/protobuf/fields.txt
//
// The facts come from the struct tags of the Go types, which say both how a field is called in JSON and what number it
// has in protobuf. The format of the output is described in crates/machinery/src/protobuf/facts.rs.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Types whose JSON form does not follow from their fields.
var special = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):                                  "time",
	reflect.TypeOf(metav1.MicroTime{}):                             "microtime",
	reflect.TypeOf(metav1.Duration{}):                              "duration",
	reflect.TypeOf(metav1.FieldsV1{}):                              "json",
	reflect.TypeOf(resource.Quantity{}):                            "quantity",
	reflect.TypeOf(intstr.IntOrString{}):                           "intorstring",
	reflect.TypeOf(runtime.RawExtension{}):                         "raw",
	reflect.TypeOf(apiextensionsv1.JSON{}):                         "json",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrBool{}):        "schemaorbool",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrArray{}):       "schemaorarray",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrStringArray{}): "schemaorstrings",
}

type marshaler interface{ Marshal() ([]byte, error) }

var marshalerType = reflect.TypeOf((*marshaler)(nil)).Elem()

func main() {
	scheme := runtime.NewScheme()
	must(clientscheme.AddToScheme(scheme))
	must(apiextensionsv1.AddToScheme(scheme))
	must(apiregistrationv1.AddToScheme(scheme))
	// Also registered under every other group, which adds nothing.
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Group: "meta.k8s.io", Version: "v1"})

	kinds := map[string]string{}
	pending := []reflect.Type{}
	for gvk, goType := range scheme.AllKnownTypes() {
		if strings.Contains(gvk.Version, "alpha") || strings.Contains(gvk.Version, "beta") || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		isMeta := strings.HasSuffix(goType.PkgPath(), "apimachinery/pkg/apis/meta/v1")
		if strings.HasSuffix(gvk.Kind, "List") || isMeta != (gvk.Group == "meta.k8s.io") || gvk.Kind == "WatchEvent" {
			continue
		}
		kinds[gvk.GroupVersion().String()+" "+gvk.Kind] = name(goType)
		pending = append(pending, goType)
	}

	messages := map[string][]string{}
	for len(pending) > 0 {
		next := pending[0]
		pending = pending[1:]
		if _, seen := messages[name(next)]; seen {
			continue
		}
		fields, used := describe(next)
		messages[name(next)] = fields
		pending = append(pending, used...)
	}
	write(kinds, messages)
}

// describe lists the fields of a struct in the order of their numbers, and the messages that they use.
func describe(message reflect.Type) (lines []string, used []reflect.Type) {
	type numbered struct {
		number int
		line   string
	}
	var fields []numbered
	for i := 0; i < message.NumField(); i++ {
		field := message.Field(i)
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if len(tag) < 2 || tag[0] == "-" {
			continue
		}
		number, err := strconv.Atoi(tag[1])
		must(err)
		json := strings.Split(field.Tag.Get("json"), ",")
		jsonName, omit := json[0], false
		for _, option := range json[1:] {
			omit = omit || option == "omitempty" || option == "omitzero"
			if option == "inline" {
				jsonName = "-"
			}
		}
		if jsonName == "" {
			panic(fmt.Sprintf("%s.%s has no JSON name", message, field.Name))
		}
		text, usedType := typeText(field.Type)
		// A pointer that is there is meant; everything else is written even when it is empty.
		if omit && field.Type.Kind() != reflect.Pointer {
			text = "?" + text
		}
		if usedType != nil {
			used = append(used, usedType)
		}
		fields = append(fields, numbered{number, fmt.Sprintf(" %d %s %s", number, jsonName, text)})
	}
	sort.Slice(fields, func(a, b int) bool { return fields[a].number < fields[b].number })
	for _, field := range fields {
		lines = append(lines, field.line)
	}
	return lines, used
}

func typeText(t reflect.Type) (text string, message reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if text, ok := special[t]; ok {
		return text, schemaMessage(t)
	}
	isMessage := reflect.PointerTo(t).Implements(marshalerType)
	switch t.Kind() {
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "int", nil
	case reflect.Float64:
		return "double", nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		text, message := typeText(t.Elem())
		if isMessage {
			// A list with a name of its own is wrapped in a message, where it is field 1.
			return "list:" + text, message
		}
		return "[]" + text, message
	case reflect.Map:
		text, message := typeText(t.Elem())
		return "{}" + text, message
	case reflect.Struct:
		return name(t), t
	}
	panic(fmt.Sprintf("no text for %s", t))
}

// schemaMessage is the message inside the three unions of a JSON schema.
func schemaMessage(t reflect.Type) reflect.Type {
	if strings.HasPrefix(special[t], "schema") {
		return reflect.TypeOf(apiextensionsv1.JSONSchemaProps{})
	}
	return nil
}

// name is the short name of a message: core/v1.Pod, meta/v1.ObjectMeta.
func name(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	return path[len(path)-2] + "/" + path[len(path)-1] + "." + t.Name()
}

func write(kinds map[string]string, messages map[string][]string) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, kind := range sorted(kinds) {
		fmt.Fprintf(out, "kind %s %s\n", kind, kinds[kind])
	}
	for _, message := range sorted(messages) {
		fmt.Fprintln(out, message)
		for _, line := range messages[message] {
			fmt.Fprintln(out, line)
		}
	}
}

func sorted[V any](from map[string]V) []string {
	keys := make([]string, 0, len(from))
	for key := range from {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
