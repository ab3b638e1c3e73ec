{{/* Completes .Values in place; every template calls it first. Helm removes a key that is null: a setting or a map of settings then
has its default, so that null disables no protection, and a list or a free map is empty. A text that is empty has its default, too. */}}
{{- define "redlock-operator.values" -}}
{{- include "redlock-operator.complete" (dict "values" .Values "defaults" (.Files.Get "files/defaults.yaml" | fromYaml) "path" "") -}}
{{- end -}}

{{/* A map in YAML without the keys that are null: merged onto defaults, such a key would remove one. */}}
{{- define "redlock-operator.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $value = include "redlock-operator.withoutNulls" $value | fromYaml -}}
{{- end -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}

{{/* Free maps have keys of the user, of which a removed one stays removed: (dict "values" … "defaults" … "path" …) */}}
{{- define "redlock-operator.complete" -}}
{{- range $key, $default := .defaults -}}
{{- $path := printf "%s.%s" $.path $key -}}
{{- $given := index $.values $key -}}
{{- $free := regexMatch "\\.(requests|limits|labels|podSecurityContext|authorCheck\\.resources)$" $path -}}
{{- $isEmpty := and (kindIs "string" $given) (kindIs "string" $default) (eq $given "") -}}
{{- if or (kindIs "invalid" $given) $isEmpty -}}
{{- $_ := set $.values $key (ternary (list) (ternary (dict) $default $free) (kindIs "slice" $default)) -}}
{{- else if and (kindIs "map" $default) (not $free) -}}
{{- include "redlock-operator.complete" (dict "values" $given "defaults" $default "path" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
